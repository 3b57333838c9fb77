/*
 * A run of the simulator, in place of the clients of `shards.pml`. Its arrays and
 * parameters come from tests/system/model/traces.py.
 *
 * Each event of the trace must be a step of the model, with the same result. Events are
 * the applied writes of shard rows, deaths, and each owner's first delivery.
 */
active proctype Trace() {
    int n, s;
    bool ok;
    Request q;
    do
    :: n < EVENTS ->
        atomic {
            s = of_shard[n];
            q.kind = kind[n]; q.shard = s; q.session = of_session[n];
            q.epoch = at_epoch[n]; q.owner = of_owner[n]; q.position = position[n];
            done[s] = done_at[n];
            if
            :: kind[n] == CREATE ->
                row[s].ready = is_ready[n]; row[s].ended = is_ended[n];
                row[s].epoch = epoch[n]; row[s].position = position[n]
            :: kind[n] == DIE -> dead[of_session[n]] = true
            :: kind[n] == DELIVER ->
                assert(row[s].owner == of_session[n] && row[s].epoch == at_epoch[n]);
                assert(PARENTS_ENDED(s) || seeking)
            :: kind[n] == SEEK -> seek(s, q.position, !is_ready[n]); seeking = true
            :: kind[n] == SOUGHT -> seeking = false
            :: kind[n] == PAUSE -> row[s].paused = true
            :: kind[n] == RESUME -> row[s].paused = false
            :: else ->
                assert(q.kind != CLAIM || q.owner == 0 || q.owner == q.session ||
                    dead[q.owner]);
                assert(q.kind != READY || PARENTS_ENDED(s) || seeking);
                apply(q);
                assert(ok)
            fi;
            assert(row[s].owner == owner[n] && row[s].epoch == epoch[n]);
            assert(row[s].position == position[n]);
            assert(row[s].ended == is_ended[n] && row[s].ready == is_ready[n]);
            n++
        }
    :: else -> break
    od
}
