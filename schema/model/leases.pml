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
#define TRUST 2
#if MISTAKE == 1        /* observers wait less than holders trust themselves */
#define FENCE 1
#else
#define FENCE 3
#endif

/* The table: each member's row. A session that was marked dead stays dead. */
byte member[CLIENTS];           /* the session, or 0 */
bool dead[SESSIONS + 1];
byte sessions;                  /* the last one */

/* Each client. */
byte session[CLIENTS];
byte trusts[CLIENTS];           /* ticks until its deadline */
bool sent[CLIENTS];             /* a heartbeat is on its way, perhaps several times */
bool stored[CLIENTS];           /* the table has it, the client does not know that yet */
byte age[CLIENTS];              /* ticks since the heartbeat was sent first */

/* What each client knows of another one: c * CLIENTS + o. */
#define PAIRS (CLIENTS * CLIENTS)
#define PAIR (c * CLIENTS + o)
byte seen[PAIRS];               /* the session at the last look */
bool changed[PAIRS];            /* the counter has changed since */
byte unchanged[PAIRS];          /* ticks since the last look at a changed counter */

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

proctype Client(byte c) {
end:
    do
    /* Register. A used id is free when its session is dead. */
    :: atomic { session[c] == 0 && sessions < SESSIONS &&
            (member[c] == 0 || dead[member[c]]) ->
        sessions++; member[c] = sessions; session[c] = sessions; trusts[c] = TRUST }
    :: atomic { session[c] != 0 && !sent[c] -> sent[c] = true }
    /* The answer to the heartbeat. The deadline counts from its first attempt. */
    :: atomic { stored[c] && (!IS_DEAD(c) || MISTAKE == 2) ->
        if
        :: age[c] < TRUST -> trusts[c] = TRUST - age[c]
        :: else
        fi;
        CHECK(c);
        sent[c] = false; stored[c] = false; age[c] = 0 }
#if MISTAKE == 3        /* the deadline counts from the retry */
    :: atomic { sent[c] && age[c] != 0 -> age[c] = 0 }
#endif
    /* The answer says that the session is dead. */
    :: atomic { IS_DEAD(c) && MISTAKE != 2 ->
        session[c] = 0; sent[c] = false; stored[c] = false; age[c] = 0 }
    od
}

/* The table stores a heartbeat. Further attempts store the same count. */
proctype Table(byte c) {
    byte k;
end:
    do
    :: atomic { sent[c] && !stored[c] && (!IS_DEAD(c) || MISTAKE == 2) ->
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
        k = 0 }
    od
}

proctype Observer(byte c; byte o) {
    byte k;
end:
    do
    /* Look. */
    :: atomic { session[c] != 0 && member[o] != 0 && !dead[member[o]] &&
            ((changed[PAIR] && MISTAKE != 4) || seen[PAIR] != member[o]) ->
        if
        :: MISTAKE == 5 && seen[PAIR] != 0      /* a look does not restart the wait */
        :: else -> unchanged[PAIR] = 0
        fi;
        seen[PAIR] = member[o]; changed[PAIR] = false }
    /* Mark dead, if the session and the counter are those of the last look. */
    :: atomic { session[c] != 0 && unchanged[PAIR] >= FENCE &&
            seen[PAIR] == member[o] && !dead[member[o]] &&
            (!changed[PAIR] || MISTAKE == 4) ->
        dead[member[o]] = true;
        forget(o);
        CHECK(o) }
    od
}

proctype Clock() {
    byte c, o;
end:
    do
    :: atomic {
        do
        :: c < CLIENTS ->
            if
            :: trusts[c] > 0 -> trusts[c]--
            :: else
            fi;
            if
            :: sent[c] && age[c] < TRUST -> age[c]++
            :: else
            fi;
            o = 0;
            do
            :: o < CLIENTS ->
                if
                :: seen[PAIR] != 0 && unchanged[PAIR] < FENCE -> unchanged[PAIR]++
                :: else
                fi;
                o++
            :: else -> break
            od;
            c++
        :: else -> break
        od;
        c = 0; o = 0 }
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
