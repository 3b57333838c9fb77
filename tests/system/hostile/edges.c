/* Note which branches of the decoder a run takes: the compiler calls this at each. */

#include <stdint.h>

enum { EDGES = 1 << 13 }; /* a power of two, many times the branches of the decoder */
uint8_t edges[EDGES];

void __sanitizer_cov_trace_pc(void) {
    static uintptr_t before;
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    edges[(here ^ before) % EDGES] = 1;
    before = here >> 1;
}
