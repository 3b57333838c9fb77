/* Rewrite CBOR as MessagePack, which msgspec decodes directly into records, and split
 * a page of records into the columns of Arrow.
 *
 * The input is an answer of Kinesis: RFC 8949, with AWS's own meaning of times. An
 * integer with tag 1 is in milliseconds since 1970. It becomes a float in seconds.
 * Other tags are left out. Input that isn't complete CBOR raises ValueError. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>

#define MAX_DEPTH 12
#define INDEFINITE 31
#define BREAK 0xff
#define TIME_TAG 1

enum { NATURAL, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };

typedef struct {
    const uint8_t *next, *end;  /* the input that is not read yet */
    PyObject *bytes;            /* the output, longer than what is used of it */
    Py_ssize_t used;
} Rewriter;

static int fail(const char *reason) {
    PyErr_SetString(PyExc_ValueError, reason);
    return -1;
}

/* Return where to write up to ``size`` bytes, or NULL. */
static uint8_t *room(Rewriter *r, Py_ssize_t size) {
    Py_ssize_t most = PyBytes_GET_SIZE(r->bytes);
    if (most - r->used < size) {
        if (size > PY_SSIZE_T_MAX / 2 - most) {
            PyErr_NoMemory();
            return NULL;
        }
        if (_PyBytes_Resize(&r->bytes, most + most / 2 + size) < 0) {
            return NULL;
        }
    }
    return (uint8_t *)PyBytes_AS_STRING(r->bytes) + r->used;
}

static void store(uint8_t *at, uint64_t number, int size) {
    for (int i = size - 1; i >= 0; i--) {
        at[i] = (uint8_t)number;
        number >>= 8;
    }
}

/* Write a byte and a number of ``size`` bytes. */
static int put(Rewriter *r, uint8_t first, uint64_t number, int size) {
    uint8_t *at = room(r, 1 + size);
    if (at == NULL) {
        return -1;
    }
    at[0] = first;
    store(at + 1, number, size);
    r->used += 1 + size;
    return 0;
}

static int put_double(Rewriter *r, double value) {
    uint64_t bits;
    if (!isfinite(value)) {
        return fail("a number that is not finite");
    }
    memcpy(&bits, &value, sizeof bits);
    return put(r, 0xcb, bits, 8);
}

/* Read the head of an item. A length of ``INDEFINITE`` sets ``indefinite``. */
static int head(Rewriter *r, int *major, uint64_t *number, int *indefinite) {
    if (r->next == r->end) {
        return fail("the end is missing");
    }
    int low = *r->next & 31;
    *major = *r->next >> 5;
    *indefinite = 0;
    r->next++;
    if (low < 24) {
        *number = (uint64_t)low;
        return 0;
    }
    if (low == INDEFINITE) {
        *number = 0;
        *indefinite = 1;
        return 0;
    }
    if (low > 27) {
        return fail("a reserved length");
    }
    int size = 1 << (low - 24);
    if (r->end - r->next < size) {
        return fail("the end is missing");
    }
    *number = 0;
    for (int i = 0; i < size; i++) {
        *number = *number << 8 | *r->next++;
    }
    return 0;
}

static int item(Rewriter *r, int depth);

static int copy(Rewriter *r, uint64_t size) {
    if ((uint64_t)(r->end - r->next) < size) {
        return fail("the end is missing");
    }
    uint8_t *at = room(r, (Py_ssize_t)size);
    if (at == NULL) {
        return -1;
    }
    memcpy(at, r->next, size);
    r->next += size;
    r->used += (Py_ssize_t)size;
    return 0;
}

/* Check that a text is UTF-8. */
static int check_utf8(const char *text, Py_ssize_t size) {
    Py_ssize_t at = 0;
    uint64_t word;
    for (; size - at >= 8; at += 8) { /* most texts are ASCII */
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080) {
            break;
        }
    }
    for (; at < size; at++) {
        if ((uint8_t)text[at] >= 0x80) {
            PyObject *decoded = PyUnicode_DecodeUTF8(text, size, "strict");
            Py_XDECREF(decoded);
            return decoded == NULL ? -1 : 0;
        }
    }
    return 0;
}

/* Check that the text that begins at ``begin`` of the output is UTF-8. */
static int check_text(Rewriter *r, Py_ssize_t begin) {
    return check_utf8(PyBytes_AS_STRING(r->bytes) + begin, r->used - begin);
}

static int string(Rewriter *r, int major, uint64_t size, int indefinite) {
    if (indefinite) {
        /* The length is known after the last part. */
        Py_ssize_t begin = r->used;
        if (put(r, major == TEXT ? 0xdb : 0xc6, 0, 4) < 0) {
            return -1;
        }
        for (;;) {
            int part, unknown;
            if (r->next < r->end && *r->next == BREAK) {
                r->next++;
                break;
            }
            if (head(r, &part, &size, &unknown) < 0) {
                return -1;
            }
            if (part != major || unknown) {
                return fail("a part of another type");
            }
            if (copy(r, size) < 0) {
                return -1;
            }
        }
        uint64_t length = (uint64_t)(r->used - begin - 5);
        if (length > UINT32_MAX) {
            return fail("a string that is too long");
        }
        store((uint8_t *)PyBytes_AS_STRING(r->bytes) + begin + 1, length, 4);
        return major == TEXT ? check_text(r, begin + 5) : 0;
    }
    int failed;
    if (size > (uint64_t)(r->end - r->next) || size > UINT32_MAX) {
        return fail("the end is missing");
    }
    if (major == TEXT && size < 32) {
        failed = put(r, (uint8_t)(0xa0 | size), 0, 0);
    } else if (size < 256) {
        failed = put(r, major == TEXT ? 0xd9 : 0xc4, size, 1);
    } else if (size < 65536) {
        failed = put(r, major == TEXT ? 0xda : 0xc5, size, 2);
    } else {
        failed = put(r, major == TEXT ? 0xdb : 0xc6, size, 4);
    }
    if (failed || copy(r, size) < 0) {
        return -1;
    }
    return major == TEXT ? check_text(r, r->used - (Py_ssize_t)size) : 0;
}

static int elements(Rewriter *r, int major, uint64_t count, int indefinite, int depth) {
    Py_ssize_t begin = r->used;
    uint64_t seen = 0;
    if (put(r, major == MAP ? 0xdf : 0xdd, 0, 4) < 0) {
        return -1;
    }
    for (;; seen++) {
        if (!indefinite) {
            if (seen == count) {
                break;
            }
        } else if (r->next < r->end && *r->next == BREAK) {
            r->next++;
            break;
        }
        if (major == MAP) {
            if (r->next < r->end && *r->next >> 5 != TEXT) {
                return fail("a key that is not a text");
            }
            if (item(r, depth + 1) < 0) {
                return -1;
            }
        }
        if (item(r, depth + 1) < 0) {
            return -1;
        }
    }
    if (seen > UINT32_MAX) {
        return fail("too many elements");
    }
    store((uint8_t *)PyBytes_AS_STRING(r->bytes) + begin + 1, seen, 4);
    return 0;
}

static int simple(Rewriter *r, const uint8_t *begin) {
    switch (*begin & 31) {
    case 20:
        return put(r, 0xc2, 0, 0);
    case 21:
        return put(r, 0xc3, 0, 0);
    case 22:
        return put(r, 0xc0, 0, 0);
    case 25:
        return put_double(r, PyFloat_Unpack2((const char *)begin + 1, 0));
    case 26:
        return put_double(r, PyFloat_Unpack4((const char *)begin + 1, 0));
    case 27:
        return put_double(r, PyFloat_Unpack8((const char *)begin + 1, 0));
    default:
        return fail("a value that Kinesis does not send");
    }
}

static int integer(Rewriter *r, int major, uint64_t number) {
    if (major == NATURAL) {
        return number < 128 ? put(r, (uint8_t)number, 0, 0) : put(r, 0xcf, number, 8);
    }
    if (number > INT64_MAX) {
        return put_double(r, -1.0 - (double)number);
    }
    return put(r, 0xd3, ~number, 8);
}

static int item(Rewriter *r, int depth) {
    const uint8_t *begin = r->next;
    int major, indefinite;
    uint64_t number;
    if (head(r, &major, &number, &indefinite) < 0) {
        return -1;
    }
    if (major == SIMPLE) {
        return simple(r, begin);
    }
    if (major == BYTES || major == TEXT) {
        return string(r, major, number, indefinite);
    }
    if (major == ARRAY || major == MAP || major == TAG) {
        if (depth == MAX_DEPTH) {
            return fail("more than 12 levels");
        }
        if (major != TAG) {
            return elements(r, major, number, indefinite, depth);
        }
    }
    if (indefinite) {
        return fail("a number or a tag without an end");
    }
    if (major != TAG) {
        return integer(r, major, number);
    }
    if (number == TIME_TAG && r->next < r->end && *r->next >> 5 <= NEGATIVE) {
        if (head(r, &major, &number, &indefinite) < 0) {
            return -1;
        }
        if (indefinite) {
            return fail("a number or a tag without an end");
        }
        double value = (double)number;
        return put_double(r, (major == NATURAL ? value : -1.0 - value) / 1000.0);
    }
    return item(r, depth + 1);
}

static PyObject *to_msgpack(PyObject *self, PyObject *body) {
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(body, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Rewriter r = {view.buf, (const uint8_t *)view.buf + view.len, NULL, 0};
    r.bytes = PyBytes_FromStringAndSize(NULL, view.len + 64);
    if (r.bytes != NULL) {
        int failed = item(&r, 0);
        if (!failed && r.next != r.end) {
            failed = fail("bytes after the end");
        }
        if (failed) {
            Py_CLEAR(r.bytes);
        } else {
            _PyBytes_Resize(&r.bytes, r.used);
        }
    }
    PyBuffer_Release(&view);
    return r.bytes;
}

/* --- columns ------------------------------------------------------------------------ */

#define END_MILLISECONDS 253402300800000 /* the year 10000 */

enum { SEQUENCE_NUMBER, PARTITION_KEY, DATA, STRINGS };

typedef struct {
    const uint8_t *text;
    Py_ssize_t size;
} Slice;

typedef struct {
    Slice strings[STRINGS];
    int64_t milliseconds;
} Record;

/* Read the next item, which must be a string of known length. */
static int slice(Rewriter *r, int expected, Slice *found) {
    int major, indefinite;
    uint64_t size;
    if (head(r, &major, &size, &indefinite) < 0) {
        return -1;
    }
    if (major != expected || indefinite) {
        return fail("an unusual value");
    }
    if ((uint64_t)(r->end - r->next) < size) {
        return fail("the end is missing");
    }
    found->text = r->next;
    found->size = (Py_ssize_t)size;
    r->next += size;
    return major == TEXT ? check_utf8((const char *)found->text, found->size) : 0;
}

static int is_name(const Slice *key, const char *name) {
    return (size_t)key->size == strlen(name) && !memcmp(key->text, name, key->size);
}

static int arrival(Rewriter *r, int64_t *milliseconds) {
    int major, indefinite;
    uint64_t number;
    if (head(r, &major, &number, &indefinite) < 0) {
        return -1;
    }
    if (major != TAG || number != TIME_TAG || indefinite) {
        return fail("an unusual time");
    }
    if (head(r, &major, &number, &indefinite) < 0) {
        return -1;
    }
    if (major != NATURAL || indefinite || number >= END_MILLISECONDS) {
        return fail("an unusual time");
    }
    *milliseconds = (int64_t)number;
    return 0;
}

/* Return whether an array or a map ends after ``seen`` elements. Skip its break. */
static int is_end(Rewriter *r, uint64_t seen, uint64_t count, int indefinite) {
    if (!indefinite) {
        return seen == count;
    }
    if (r->next < r->end && *r->next == BREAK) {
        r->next++;
        return 1;
    }
    return 0;
}

/* Read a record, which must have each of the four fields once, and no others. */
static int record(Rewriter *r, Record *found) {
    int major, indefinite, fields = 0;
    uint64_t count;
    if (head(r, &major, &count, &indefinite) < 0) {
        return -1;
    }
    if (major != MAP) {
        return fail("an unusual record");
    }
    for (uint64_t seen = 0; !is_end(r, seen, count, indefinite); seen++) {
        Slice key;
        int field, failed;
        if (slice(r, TEXT, &key) < 0) {
            return -1;
        }
        if (is_name(&key, "SequenceNumber")) {
            field = 1;
            failed = slice(r, TEXT, &found->strings[SEQUENCE_NUMBER]);
        } else if (is_name(&key, "PartitionKey")) {
            field = 2;
            failed = slice(r, TEXT, &found->strings[PARTITION_KEY]);
        } else if (is_name(&key, "Data")) {
            field = 4;
            failed = slice(r, BYTES, &found->strings[DATA]);
        } else if (is_name(&key, "ApproximateArrivalTimestamp")) {
            field = 8;
            failed = arrival(r, &found->milliseconds);
        } else {
            return fail("an unusual field");
        }
        if (failed) {
            return -1;
        }
        if (fields & field) {
            return fail("a field that comes twice");
        }
        fields |= field;
    }
    return fields == 15 ? 0 : fail("a missing field");
}

typedef struct {
    const uint8_t *array, *begin, *end; /* of the array, of its first record */
    uint64_t length;                    /* that the array states */
    int indefinite;
    Py_ssize_t count;
    Py_ssize_t sizes[STRINGS];
} Records;

/* Read the array of records. */
static int records(Rewriter *r, Records *found) {
    int major;
    found->array = r->next;
    if (head(r, &major, &found->length, &found->indefinite) < 0) {
        return -1;
    }
    if (major != ARRAY) {
        return fail("no array of records");
    }
    found->begin = r->next;
    while (!is_end(r, (uint64_t)found->count, found->length, found->indefinite)) {
        Record next;
        if (record(r, &next) < 0) {
            return -1;
        }
        for (int i = 0; i < STRINGS; i++) {
            found->sizes[i] += next.strings[i].size;
        }
        found->count++;
    }
    found->end = r->next;
    return found->count ? 0 : fail("no records");
}

/* Read an answer up to the end of its records. Skip the fields before them. */
static int answer(Rewriter *r, Records *found) {
    int major, indefinite;
    uint64_t count;
    if (head(r, &major, &count, &indefinite) < 0) {
        return -1;
    }
    if (major != MAP) {
        return fail("no map");
    }
    for (uint64_t seen = 0; !is_end(r, seen, count, indefinite); seen++) {
        Slice key;
        if (slice(r, TEXT, &key) < 0) {
            return -1;
        }
        if (is_name(&key, "Records")) {
            return records(r, found);
        }
        if (item(r, 1) < 0) {
            return -1;
        }
    }
    return fail("no records");
}

/* Return the buffers of Arrow's columns, or NULL. */
static PyObject *buffers(Rewriter *r, const Records *found) {
    PyObject *offsets[STRINGS], *strings[STRINGS];
    Py_ssize_t ends[STRINGS] = {0};
    PyObject *times = PyBytes_FromStringAndSize(NULL, 8 * found->count), *all = NULL;
    int failed = times == NULL;
    for (int i = 0; i < STRINGS; i++) {
        offsets[i] = PyBytes_FromStringAndSize(NULL, 4 * (found->count + 1));
        strings[i] = PyBytes_FromStringAndSize(NULL, found->sizes[i]);
        failed |= offsets[i] == NULL || strings[i] == NULL;
    }
    r->next = found->begin;
    for (Py_ssize_t row = 0; !failed && row <= found->count; row++) {
        for (int i = 0; i < STRINGS; i++) {
            int32_t end = (int32_t)ends[i];
            memcpy(PyBytes_AS_STRING(offsets[i]) + 4 * row, &end, 4);
        }
        Record next;
        if (row == found->count || (failed = record(r, &next))) {
            break;
        }
        for (int i = 0; i < STRINGS; i++) {
            Slice *string = &next.strings[i];
            memcpy(PyBytes_AS_STRING(strings[i]) + ends[i], string->text, string->size);
            ends[i] += string->size;
        }
        int64_t micros = next.milliseconds * 1000;
        memcpy(PyBytes_AS_STRING(times) + 8 * row, &micros, 8);
    }
    if (!failed) {
        all = PyTuple_Pack(
            7, offsets[SEQUENCE_NUMBER], strings[SEQUENCE_NUMBER],
            offsets[PARTITION_KEY], strings[PARTITION_KEY], offsets[DATA],
            strings[DATA], times);
    }
    for (int i = 0; i < STRINGS; i++) {
        Py_XDECREF(offsets[i]);
        Py_XDECREF(strings[i]);
    }
    Py_XDECREF(times);
    return all;
}

static PyObject *to_columns(PyObject *self, PyObject *body) {
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(body, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *begin = view.buf;
    Rewriter r = {begin, begin + view.len, PyBytes_FromStringAndSize(NULL, 1024), 0};
    Records found = {0};
    PyObject *columns = NULL, *result = NULL;
    if (view.len > INT32_MAX) {
        fail("a page of over 2 GiB");
    } else if (r.bytes != NULL && answer(&r, &found) == 0) {
        columns = buffers(&r, &found);
    }
    if (columns != NULL) {
        result = Py_BuildValue(
            "nnnN", (Py_ssize_t)(found.array - begin), (Py_ssize_t)(found.end - begin),
            found.count, columns);
    }
    Py_XDECREF(r.bytes);
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"to_msgpack", to_msgpack, METH_O,
     "to_msgpack(body, /)\n--\n\nReturn CBOR as MessagePack. Raise ValueError."},
    {"to_columns", to_columns, METH_O,
     "to_columns(body, /)\n--\n\n"
     "Return the records of a page as columns: where their array begins and ends in\n"
     "the page, their number, and the buffers of Arrow. These are the offsets and\n"
     "values of sequence numbers, partition keys and data, and the arrival times in\n"
     "microseconds. Raise ValueError unless each record has exactly these fields."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kinesumer_native", "Decode CBOR faster.", 0, functions,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_kinesumer_native(void) { return PyModule_Create(&module); }
