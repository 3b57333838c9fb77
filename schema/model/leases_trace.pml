/*
 * A run of the simulator, in place of the clients of `leases.pml`. Its arrays and
 * parameters come from tests/system/model/member_traces.py.
 *
 * Each event of the trace must be a step of the model. Events are heartbeats' first
 * attempts, the applied writes of members' rows, and the answers to heartbeats. Here each
 * client looks at the others as early as it can: after every event.
 */
active proctype Trace() {
    int n;
    byte c, o, k;
    do
    :: n < EVENTS ->
        atomic {
            tick(ticks[n]);
            o = of_client[n];
            if
            :: kind[n] == REGISTER ->
                assert(MAY_REGISTER(o));
                register(o, of_session[n]);
                sent[o] = false; stored[o] = false; age[o] = 0
            :: kind[n] == SEND -> sent[o] = true
            :: kind[n] == STORE -> assert(MAY_STORE(o)); store(o)
            :: kind[n] == ANSWER -> assert(MAY_ANSWER(o)); answer(o)
            :: kind[n] == LEAVE -> trusts[o] = 0; dead[of_session[n]] = true
            :: kind[n] == MARK -> c = by[n]; assert(MAY_MARK); mark(o)
            fi;
            assert(member[o] == of_session[n]);
            c = 0; o = 0;
            do
            :: c < CLIENTS && o < CLIENTS && MAY_LOOK -> look(c, o); o++
            :: c < CLIENTS && o < CLIENTS && !MAY_LOOK -> o++
            :: c < CLIENTS && o == CLIENTS -> c++; o = 0
            :: c == CLIENTS -> break
            od;
            c = 0; o = 0;
            n++
        }
    :: else -> break
    od
}
