/*
 * The leader and its plans: a client never goes back to an older plan, and when nothing
 * changes any more, all clients have the same one.
 *
 * README.md has the properties, and runs.toml the bounds and the mistakes by number.
 *
 * Sessions die at will here; `leases.pml` says when they may. A leader may stop anywhere
 * between its reads and writes, and go on when others have led since.
 *
 * With TRACE, `plans_trace.pml` replaces the clients.
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef MISTAKE
#define MISTAKE 0
#endif
#ifndef GHOSTS
#define GHOSTS 1        /* leaders that are already dead and do not know it */
#endif
#ifndef SESSIONS
#define SESSIONS (CLIENTS + DEATHS - 1)     /* the last to die does not come back */
#endif
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
/* The leader epoch and the plan's version, which are compared in this order. */
#ifndef TRACE
#define COUNT byte
#define VERSIONS 16
#else
#define COUNT int       /* the trace defines the other one */
#endif
#define NUMBER(epoch, version) ((epoch) * VERSIONS + (version))

/* The table. */
byte lead_session;
byte lead_epoch;
COUNT lead_version;             /* a new leader goes on with it */
byte member[CLIENTS];           /* the session, or 0 */
COUNT assigned[CLIENTS];        /* the number of the plan in the member's row */
bool dead[SESSIONS + 1];
byte sessions, deaths, ghosts;

byte led_by[SESSIONS + 2 * GHOSTS + 1];      /* by leader epoch: the session that led in it */

/* The table applies a write. `ok` is the answer. */
inline register(o, by) {
    ok = member[o] == 0 || dead[member[o]];
    if
    :: ok -> member[o] = by; assigned[o] = 0
    :: else
    fi
}

inline lead(by) {
    ok = lead_session == 0 || dead[lead_session];
    if
    :: ok ->
        lead_session = by;
        if
        :: MISTAKE != 1 || lead_epoch == 0 -> lead_epoch++
        :: else
        fi;
        assert(led_by[lead_epoch] == 0);
        led_by[lead_epoch] = by
    :: else
    fi
}

inline publish(by, epoch) {
    ok = lead_session == by && lead_epoch == epoch || MISTAKE == 2;
    if
    :: ok -> lead_version++; assert(lead_version < VERSIONS)
    :: else
    fi
}

inline assign(o, to, number) {
    ok = member[o] == to && !dead[member[o]] && (assigned[o] < number || MISTAKE == 4);
    if
    :: ok ->
        assert(number <= NUMBER(lead_epoch, lead_version));
        assigned[o] = number
    :: else
    fi
}

#ifndef TRACE

/* Each client. */
byte session[CLIENTS];
byte accepted[CLIENTS];         /* the number of the plan that the client follows */
byte leads[CLIENTS];            /* its leader epoch, or 0 */

/* A leader's plan: for which sessions, and who has not got it yet. */
byte planned[CLIENTS];          /* a set of sessions */
byte version[CLIENTS];
byte due[CLIENTS];              /* a set of clients */
byte targets[CLIENTS * CLIENTS];

#define LIVES(o) (member[o] != 0 && !dead[member[o]])
#define ONE(o) (LIVES(o) -> BIT(member[o] - 1) : 0)
#if CLIENTS == 2
#define LIVING (ONE(0) | ONE(1))
#else
#define LIVING (ONE(0) | ONE(1) | ONE(2))
#endif
/* Clients that never registered are alike, so only the first of them does. */
#define IS_NEXT(c) (c == 0 || member[c - 1] != 0)
#define IS_LEADER (session[c] != 0 && leads[c] != 0)

inline step_down() {
    leads[c] = 0; planned[c] = 0; version[c] = 0; due[c] = 0;
    o = 0;
    do
    :: o < CLIENTS -> targets[c * CLIENTS + o] = 0; o++
    :: else -> break
    od;
    o = 0
}

proctype Client(byte c) {
    byte o;
    bool ok;
end:
    do
    :: d_step { session[c] == 0 && (member[c] == 0 || dead[member[c]]) &&
            sessions < SESSIONS && IS_NEXT(c) ->
        sessions++; session[c] = sessions; register(c, sessions); ok = false }
    :: d_step { session[c] != 0 && !dead[session[c]] && deaths < DEATHS ->
        deaths++; dead[session[c]] = true }
    /* The answer to a heartbeat: the plan, or that the session is dead. */
    :: d_step { session[c] != 0 && !dead[session[c]] && accepted[c] != assigned[c] ->
        assert(assigned[c] > accepted[c]);
        accepted[c] = assigned[c] }
    :: d_step { session[c] != 0 && dead[session[c]] ->
        session[c] = 0; accepted[c] = 0; step_down() }
    od
}

proctype Leader(byte c) {
    byte o;
    bool ok;
end:
    do
    :: d_step { session[c] != 0 && leads[c] == 0 &&
            (lead_session == 0 || dead[lead_session]) &&
            (!dead[session[c]] || ghosts < GHOSTS) ->
        if
        :: dead[session[c]] -> ghosts++
        :: else
        fi;
        lead(session[c]); leads[c] = lead_epoch; ok = false }
    /* Publish a plan, if other sessions live than the last one was made for. */
    :: d_step { IS_LEADER && due[c] == 0 && LIVING != planned[c] &&
            (MISTAKE != 3 || planned[c] == 0) ->
        publish(session[c], leads[c]);
        if
        :: !ok -> step_down()
        :: else ->
            planned[c] = LIVING; version[c] = lead_version;
            do
            :: o < CLIENTS && LIVES(o) ->
                targets[c * CLIENTS + o] = member[o]; due[c] = due[c] | BIT(o); o++
            :: o < CLIENTS && !LIVES(o) -> o++
            :: o == CLIENTS -> break
            od;
            o = 0
        fi;
        ok = false }
    /* Write the range of the next client. */
    :: d_step { IS_LEADER && due[c] != 0 ->
        do
        :: HAS(due[c], o) -> break
        :: else -> o++
        od;
        due[c] = due[c] & ~BIT(o);
        assign(o, targets[c * CLIENTS + o], NUMBER(leads[c], version[c]));
        targets[c * CLIENTS + o] = 0; o = 0; ok = false }
    od
}

/* When nothing can happen any more, all clients follow the plan for those who live. */
proctype Settled() {
    byte o;
end:
    timeout ->
    atomic {
        do
        :: o < CLIENTS ->
            assert(!LIVES(o) || accepted[o] == NUMBER(lead_epoch, lead_version));
            assert(!LIVES(o) || leads[o] != lead_epoch || planned[o] == LIVING);
            o++
        :: else -> break
        od
    }
}

init {
    byte c;
    atomic {
        do
        :: c < CLIENTS -> run Client(c); run Leader(c); c++
        :: else -> break
        od;
        run Settled();
        c = 0
    }
}

#endif
