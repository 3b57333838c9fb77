/*
 * A run of the simulator, in place of the clients of `plans.pml`. Its arrays and
 * parameters come from tests/system/model/member_traces.py.
 *
 * Each event of the trace must be a step of the model, with the same result. Events are
 * the applied writes of the leader's row and of members' rows, except heartbeats.
 */
active proctype Trace() {
    int n, o;
    bool ok;
    do
    :: n < EVENTS ->
        atomic {
            o = of_client[n];
            if
            :: kind[n] == REGISTER -> register(o, of_session[n])
            :: kind[n] == DIE -> ok = true; dead[of_session[n]] = true
            :: kind[n] == PRUNE -> ok = dead[member[o]]; member[o] = 0; assigned[o] = 0
            :: kind[n] == LEAD -> lead(of_session[n])
            :: kind[n] == PUBLISH -> publish(of_session[n], at_epoch[n])
            :: kind[n] == ASSIGN ->
                assign(o, of_session[n], NUMBER(at_epoch[n], at_version[n]))
            fi;
            assert(ok);
            assert(lead_session == leader[n]);
            assert(lead_epoch == epoch[n] && lead_version == version[n]);
            assert(member[o] == session[n] && assigned[o] == plan[n]);
            n++
        }
    :: else -> break
    od
}
