/*
 * Who owns a shard, and how far it is read: claims, checkpoints, releases, the ends of
 * shards and their children, seeks and pauses.
 *
 * README.md has the properties, and runs.toml the bounds and the mistakes by number.
 *
 * `leases.pml` proves what this model assumes: a session is marked dead only after it has
 * stopped trusting itself. Plans are advice, so clients claim what they like here, and
 * release it when they like.
 *
 * With TRACE, `shards_trace.pml` replaces the clients.
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef SHARDS
#define SHARDS 3        /* 1; 3: shard 0 is split; 4: its children are merged, too */
#endif
#ifndef RECORDS
#define RECORDS 1       /* in each shard */
#endif
#ifndef SESSIONS
#define SESSIONS 3
#endif
#ifndef LAPSES
#define LAPSES 1        /* how often a client stops trusting itself; it may be marked dead */
#endif
#ifndef MOVES
#define MOVES 1         /* releases because of a plan */
#endif
#ifndef COPIES
#define COPIES 1        /* requests that the table gets once more, at any later time */
#endif
#ifndef LOSSES
#define LOSSES 1        /* answers that are lost, so that the client asks again */
#endif
#ifndef SEEKS
#define SEEKS 0         /* seeks of the stream to its first records */
#endif
#ifndef PAUSES
#define PAUSES 0        /* pauses of shard 0 */
#endif
#ifndef MISTAKE
#define MISTAKE 0
#endif

/* Shard 0 has the children 1 and 2, which have the child 3. */
#define IS_CLOSED(s) (s == 0 && SHARDS > 1 || s < 3 && SHARDS > 3)
#define CHILDREN(s) (s == 0 -> 6 : (s < 3 -> 8 : 0))
#ifndef TRACE
#define COUNT byte
#define RECORDS_OF(s) RECORDS
#define PARENTS_ENDED(s) (s == 0 || s < 3 && row[0].ended || \
    s == 3 && row[1].ended && row[2].ended)
#else
#define COUNT int       /* the trace defines the other two */
#endif
#define MAY_OPEN(s) (PARENTS_ENDED(s) || MISTAKE == 1)
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)

mtype = { CLAIM, COMMIT, RELEASE, END, READY };
mtype = { SENT, ACCEPTED, REFUSED };

typedef Row {
    byte owner;         /* a session, or 0 */
    byte epoch;
    COUNT position;     /* the checkpoint, as the number of records before it */
    bool ended;
    bool ready;
    bool paused;
    bool claimed        /* the epoch is that of the claim, whose nonce is in the row */
};

typedef Request {
    mtype state;        /* 0: no request */
    mtype kind;
    byte session;
    byte shard;
    byte epoch;
    byte owner;         /* in a claim, the dead session that is named, or its own */
    COUNT position
};

typedef Held {
    byte epoch;         /* 0: the client does not hold the shard */
    byte read;          /* the records that user code got */
    byte done;
    bool stopping       /* user code gets no more */
};

Row row[SHARDS];
byte session[CLIENTS];
bool trusts[CLIENTS];
bool dead[SESSIONS + 1];
Request request[CLIENTS];
Held held[CLIENTS * SHARDS];
byte opening[CLIENTS];          /* children that the client has to open, as bits */
Request copy[COPIES + 1];
byte sessions, lapses, moves, copies, losses, seeks, pauses;
bool seeking;

/* What is true: the prefix of each shard that user code did, since the last seek. */
COUNT done[SHARDS];
byte sought[SHARDS];            /* the epoch of the last seek */

#define LIVES (session[c] != 0 && !dead[session[c]])
#define MINE held[c * SHARDS + s]
#define IDLE (session[c] != 0 && request[c].state == 0)
#define ANSWER(what, how) (session[c] != 0 && request[c].kind == what && \
    request[c].shard == s && request[c].state == how)
#define SEND(w, e, o, p) request[c].kind = w; request[c].session = session[c]; \
    request[c].shard = s; request[c].epoch = e; request[c].owner = o; \
    request[c].position = p; request[c].state = SENT

inline clear(r) {
    r.state = 0; r.kind = 0; r.session = 0; r.shard = 0; r.epoch = 0; r.owner = 0;
    r.position = 0
}

inline let_go(h) {
    h.epoch = 0; h.read = 0; h.done = 0; h.stopping = false
}

/* The owner stays, but may store nothing more. Only it may claim the shard again. */
inline seek(s, to, waits) {
    if
    :: MISTAKE != 13 -> row[s].epoch++
    :: else
    fi;
    row[s].position = to; row[s].ended = false; row[s].claimed = false;
    if
    :: waits -> row[s].ready = false
    :: else
    fi;
    done[s] = to; sought[s] = row[s].epoch
}

/* The table applies a request. `ok` is the answer. */
#define ROW row[q.shard]
inline apply(q) {
    if
    :: q.kind == CLAIM ->
        ok = ROW.ready && !ROW.ended && (!ROW.paused || MISTAKE == 2) &&
            (ROW.epoch == q.epoch || MISTAKE == 3) &&
            (ROW.owner == 0 || ROW.owner == q.owner);
        if
        :: ok ->
            assert(!ROW.paused && ROW.epoch == q.epoch);
            ROW.owner = q.session; ROW.epoch = q.epoch + 1; ROW.claimed = true;
            q.position = ROW.position
        :: else ->  /* the answer was lost, if the claim's nonce is there */
            ok = ROW.owner == q.session && ROW.epoch == q.epoch + 1 && !ROW.ended &&
                ROW.claimed;
            q.position = ROW.position
        fi
    :: q.kind == READY ->
        if
        :: ROW.epoch == q.epoch || MISTAKE == 4 -> ROW.ready = true
        :: else
        fi;
        ok = true
    :: else ->
        ok = ROW.owner == q.session &&
            (ROW.epoch == q.epoch || MISTAKE == 5) &&
            (q.position >= ROW.position || MISTAKE == 6);
        if
        :: ok ->
            assert(q.position >= ROW.position);
            assert(q.position <= done[q.shard]);
            ROW.position = q.position;
            if
            :: q.kind == COMMIT
            :: q.kind == RELEASE -> ROW.owner = 0
            :: q.kind == END ->
                assert(done[q.shard] == RECORDS_OF(q.shard));
                ROW.owner = 0; ROW.ended = true
            fi
        :: else
        fi
    fi
}

#ifndef TRACE

proctype Table(byte c) {
    bool ok;
end:
    do
    :: d_step { request[c].state == SENT ->
        apply(request[c]);
        if
        :: ok -> request[c].state = ACCEPTED
        :: else -> request[c].state = REFUSED
        fi;
        ok = false }
    :: d_step { request[c].state != 0 &&
            request[c].state != SENT && losses < LOSSES ->
        losses++; request[c].state = SENT }
    :: d_step { request[c].state == SENT && copies < COPIES ->
        copy[copies].kind = request[c].kind;
        copy[copies].session = request[c].session;
        copy[copies].shard = request[c].shard;
        copy[copies].epoch = request[c].epoch;
        copy[copies].owner = request[c].owner;
        copy[copies].position = request[c].position;
        copies++ }
    od
}

proctype Late() {
    byte n;
    bool ok;
end:
    do
    :: d_step { n < copies -> apply(copy[n]); clear(copy[n]); ok = false; n++ }
    od
}

/* Clients without a session are alike, so only the first of them registers. */
#define IS_FIRST(c) ((c == 0 || session[c - 1] != 0) && (c < 2 || session[c - 2] != 0))

/* A lapse is all that can happen to a process: a crash, a pause, a lost connection. */
proctype Session(byte c) {
    byte s;
end:
    do
    :: d_step { session[c] == 0 && sessions < SESSIONS && IS_FIRST(c) ->
        sessions++; session[c] = sessions; trusts[c] = true }
    :: d_step { LIVES && trusts[c] && lapses < LAPSES -> lapses++; trusts[c] = false }
    :: d_step { LIVES && !trusts[c] -> trusts[c] = true }
    :: d_step { LIVES && (!trusts[c] || MISTAKE == 7) -> dead[session[c]] = true }
    :: d_step { session[c] != 0 && dead[session[c]] ->
        session[c] = 0; trusts[c] = false; opening[c] = 0; clear(request[c]);
        do
        :: s < SHARDS -> let_go(MINE); s++
        :: else -> break
        od;
        s = 0 }
    od
}

proctype Work(byte c; byte s) {
end:
    do
    :: d_step { IDLE && MINE.epoch == 0 && row[s].ready && !row[s].ended &&
            !row[s].paused && (row[s].owner == 0 || row[s].owner == session[c] ||
                dead[row[s].owner] || MISTAKE == 8) ->
        SEND(CLAIM, row[s].epoch, row[s].owner, 0) }
    :: d_step { ANSWER(CLAIM, ACCEPTED) ->
        MINE.epoch = request[c].epoch + 1;
        MINE.read = request[c].position; MINE.done = MINE.read;
        clear(request[c]) }
    :: d_step { ANSWER(CLAIM, REFUSED) || ANSWER(READY, ACCEPTED) ||
            ANSWER(COMMIT, ACCEPTED) ->
        clear(request[c]) }

    /* Give user code a record. */
    :: d_step { session[c] != 0 && (trusts[c] || MISTAKE == 9) && MINE.epoch != 0 &&
            !MINE.stopping && MINE.read < RECORDS && MINE.read == MINE.done ->
        assert(row[s].owner == session[c]);
        assert(row[s].epoch == MINE.epoch || row[s].epoch == sought[s]);
        assert(PARENTS_ENDED(s) || seeking || MINE.epoch <= sought[s]);
        MINE.read++ }
    :: d_step { session[c] != 0 && MINE.done < MINE.read ->
        MINE.done++;
        if
        :: MINE.epoch > sought[s] && MINE.done > done[s] -> done[s] = MINE.done
        :: else
        fi }

    /* A refusal tells that the shard is lost, or that an operator has sought it. */
    :: d_step { IDLE && MINE.epoch != 0 && !MINE.stopping &&
            (MINE.done > row[s].position || row[s].epoch != MINE.epoch) ->
        SEND(COMMIT, MINE.epoch, 0, MINE.done) }
    :: d_step { ANSWER(COMMIT, REFUSED) -> clear(request[c]); let_go(MINE) }

    /* Release. User code may still be at work, if it takes too long. */
    :: d_step { IDLE && MINE.epoch != 0 && !MINE.stopping && row[s].paused ->
        MINE.stopping = true }
    :: d_step { IDLE && MINE.epoch != 0 && !MINE.stopping && moves < MOVES ->
        moves++; MINE.stopping = true }
    :: d_step { IDLE && MINE.epoch != 0 && MINE.stopping ->
        SEND(RELEASE, MINE.epoch, 0, (MISTAKE == 10 -> MINE.read : MINE.done)) }
    /* After a seek, the row names the client, but it may not claim the shard now. */
    :: d_step { IDLE && MINE.epoch == 0 && row[s].owner == session[c] &&
            (row[s].paused || !row[s].ready) ->
        SEND(RELEASE, row[s].epoch, 0, row[s].position) }
    :: d_step { ANSWER(RELEASE, ACCEPTED) || ANSWER(RELEASE, REFUSED) ->
        clear(request[c]); let_go(MINE) }

    /* End a closed shard, and open the children whose parents have all ended. */
    :: d_step { IDLE && MINE.epoch != 0 && IS_CLOSED(s) &&
            (MISTAKE == 11 -> MINE.read : MINE.done) == RECORDS ->
        MINE.stopping = true;
        SEND(END, MINE.epoch, 0, RECORDS) }
    :: d_step { ANSWER(END, ACCEPTED) ->
        opening[c] = opening[c] | CHILDREN(s); clear(request[c]); let_go(MINE) }
    :: d_step { ANSWER(END, REFUSED) -> clear(request[c]); let_go(MINE) }
    :: d_step { IDLE && HAS(opening[c], s) ->
        opening[c] = opening[c] & ~BIT(s);
        if
        :: !row[s].ready && MAY_OPEN(s) -> SEND(READY, row[s].epoch, 0, 0)
        :: else
        fi }
    /* The leader opens what a crash left closed. */
    :: d_step { IDLE && !row[s].ready && MAY_OPEN(s) && MISTAKE != 12 ->
        SEND(READY, row[s].epoch, 0, 0) }
    od
}

proctype Operator() {
    byte s;
end:
    do
    /* Seek all shards to their first records, with one write for each, parents first. */
    :: d_step { !seeking && seeks < SEEKS -> seeks++; seeking = true }
    :: d_step { seeking ->
        seek(s, 0, s != 0); s++;
        if
        :: s == SHARDS -> seeking = false; s = 0
        :: else
        fi }
    :: d_step { pauses < PAUSES && !row[0].paused -> pauses++; row[0].paused = true }
    :: d_step { row[0].paused -> row[0].paused = false }
    od
}

/* When nothing can happen any more, every record is done, if a client lives. */
proctype Settled() {
    byte s, c, alive;
end:
    timeout ->
    atomic {
        do
        :: c < CLIENTS && LIVES -> alive++; c++
        :: c < CLIENTS && !LIVES -> c++
        :: c == CLIENTS -> break
        od;
        do
        :: s < SHARDS ->
            assert(alive == 0 || row[s].ended || row[s].ready && row[s].owner != 0 &&
                !dead[row[s].owner]);
            assert(alive == 0 || row[s].position == RECORDS);
            s++
        :: else -> break
        od
    }
}

init {
    byte c, s;
    atomic {
        row[0].ready = true;
        do
        :: c < CLIENTS ->
            run Table(c); run Session(c); s = 0;
            do
            :: s < SHARDS -> run Work(c, s); s++
            :: else -> break
            od;
            c++
        :: else -> break
        od;
        if
        :: COPIES > 0 -> run Late()
        :: else
        fi;
        if
        :: SEEKS + PAUSES > 0 -> run Operator()
        :: else
        fi;
        run Settled();
        c = 0; s = 0
    }
}

#endif
