/*
 * Sessions and their leases: a client is marked dead only after it has stopped trusting
 * itself.
 *
 * README.md has the properties, and runs.toml the bounds and the mistakes by number.
 *
 * No clock is compared with another one. A tick is a time that passes on all clocks: a
 * holder trusts itself until TRUST ticks after it first sent the last acknowledged
 * heartbeat, and an observer marks it dead FENCE ticks after its own look at the counter,
 * if the counter has not changed since. A process that is suspended takes no step while
 * ticks pass, so any process may be suspended anywhere, for any time.
 *
 * With TRACE, `leases_trace.pml` replaces the clients, and a tick is a millisecond.
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef SESSIONS
#define SESSIONS 4
#endif
#ifndef MISTAKE
#define MISTAKE 0
#endif
#ifndef TRACE
#define COUNT byte
#define TRUST 2
#define FENCE (MISTAKE == 1 -> 1 : 3)   /* 1 is less than holders trust themselves */
#else
#define COUNT int                       /* the trace defines the other two */
#endif

/* The table: each member's row. A session that was marked dead stays dead. */
byte member[CLIENTS];           /* the session, or 0 */
bool dead[SESSIONS + 1];
byte sessions;                  /* the last one */

/* Each client. */
byte session[CLIENTS];
COUNT trusts[CLIENTS];          /* ticks until its deadline */
bool sent[CLIENTS];             /* a heartbeat is on its way, perhaps several times */
bool stored[CLIENTS];           /* the table has it, the client does not know that yet */
COUNT age[CLIENTS];             /* ticks since the heartbeat was sent first */

/* What each client knows of another one: c * CLIENTS + o. */
#define PAIRS (CLIENTS * CLIENTS)
#define PAIR (c * CLIENTS + o)
byte seen[PAIRS];               /* the session at the last look */
bool changed[PAIRS];            /* the counter has changed since */
COUNT unchanged[PAIRS];         /* ticks since the last look at a changed counter */

#define IS_DEAD(c) (session[c] != 0 && dead[session[c]])
#define CHECK(c) assert(!IS_DEAD(c) || trusts[c] == 0)

inline forget(o) {
    k = 0;
    do
    :: k < CLIENTS ->
        seen[k * CLIENTS + o] = 0; changed[k * CLIENTS + o] = false;
        unchanged[k * CLIENTS + o] = 0; k++
    :: else -> break
    od;
    k = 0
}

/* A used id is free when its session is dead. */
#define MAY_REGISTER(c) (member[c] == 0 || dead[member[c]])
inline register(c, by) {
    member[c] = by; session[c] = by; trusts[c] = TRUST
}

/* The answer to the heartbeat, perhaps after the session was marked dead. The deadline
 * counts from the heartbeat's first attempt. */
#define MAY_ANSWER(c) stored[c]
inline answer(c) {
    if
    :: age[c] < TRUST -> trusts[c] = TRUST - age[c]
    :: else
    fi;
    CHECK(c);
    sent[c] = false; stored[c] = false; age[c] = 0
}

/* The table stores a heartbeat. Further attempts store the same count. */
#define MAY_STORE(c) (sent[c] && !stored[c] && (!IS_DEAD(c) || MISTAKE == 2))
inline store(c) {
    stored[c] = true;
    do
    :: k < CLIENTS ->
        if
        :: seen[k * CLIENTS + c] != 0 -> changed[k * CLIENTS + c] = true
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

#define MAY_LOOK (session[c] != 0 && member[o] != 0 && !dead[member[o]] && \
    (changed[PAIR] && MISTAKE != 4 || seen[PAIR] != member[o]))
inline look(c, o) {
    if
    :: MISTAKE == 5 && seen[PAIR] != 0      /* a look does not restart the wait */
    :: else -> unchanged[PAIR] = 0
    fi;
    seen[PAIR] = member[o]; changed[PAIR] = false
}

/* Mark dead, if the session and the counter are those of the last look. */
#define MAY_MARK (session[c] != 0 && unchanged[PAIR] >= FENCE && \
    seen[PAIR] == member[o] && !dead[member[o]] && (!changed[PAIR] || MISTAKE == 4))
inline mark(o) {
    dead[member[o]] = true;
    forget(o);
    CHECK(o)
}

/* Let a time pass on all clocks. */
inline tick(time) {
    do
    :: c < CLIENTS ->
        trusts[c] = (trusts[c] > time -> trusts[c] - time : 0);
        if
        :: sent[c] -> age[c] = (age[c] + time < TRUST -> age[c] + time : TRUST)
        :: else
        fi;
        o = 0;
        do
        :: o < CLIENTS ->
            if
            :: seen[PAIR] != 0 ->
                unchanged[PAIR] =
                    (unchanged[PAIR] + time < FENCE -> unchanged[PAIR] + time : FENCE)
            :: else
            fi;
            o++
        :: else -> break
        od;
        c++
    :: else -> break
    od;
    c = 0; o = 0
}

#ifndef TRACE

/* Clients that never registered are alike, so only the first of them does. */
#define IS_NEXT(c) (c == 0 || member[c - 1] != 0)

proctype Client(byte c) {
end:
    do
    :: d_step { session[c] == 0 && sessions < SESSIONS && MAY_REGISTER(c) &&
            IS_NEXT(c) ->
        sessions++; register(c, sessions) }
    :: d_step { session[c] != 0 && !sent[c] -> sent[c] = true }
    :: d_step { MAY_ANSWER(c) -> answer(c) }
#if MISTAKE == 3        /* the deadline counts from the retry */
    :: d_step { sent[c] && age[c] != 0 -> age[c] = 0 }
#endif
    /* The answer says that the session is dead. */
    :: d_step { IS_DEAD(c) && MISTAKE != 2 ->
        session[c] = 0; sent[c] = false; stored[c] = false; age[c] = 0 }
    od
}

proctype Table(byte c) {
    byte k;
end:
    do
    :: d_step { MAY_STORE(c) -> store(c) }
    od
}

proctype Observer(byte c; byte o) {
    byte k;
end:
    do
    :: d_step { MAY_LOOK -> look(c, o) }
    :: d_step { MAY_MARK -> mark(o) }
    od
}

proctype Clock() {
    byte c, o;
end:
    do
    :: d_step { tick(1) }
    od
}

init {
    byte c, o;
    atomic {
        do
        :: c < CLIENTS ->
            run Client(c); run Table(c);
            o = 0;
            do
            :: o < CLIENTS ->
                if
                :: o != c -> run Observer(c, o)
                :: else
                fi;
                o++
            :: else -> break
            od;
            c++
        :: else -> break
        od;
        run Clock();
        c = 0; o = 0
    }
}

#endif
