// SPDX-License-Identifier: MPL-2.0
/* What the worlds of the protocol model have met: counts, and which state of a task or of a
 * connection has met which event. The names are stable, as those of stats.h are: `--require` fails
 * when a place of the tables that can be reached was not. */
#ifndef HOLDFAST_SIM_PROTOCOL_STATS_H
#define HOLDFAST_SIM_PROTOCOL_STATS_H

#include <stdbool.h>
#include <stdint.h>

/*        name                  what it counts; all must occur */
#define PROTOCOL_STATS(X)                                                                          \
    X(worlds, "worlds run")                                                                        \
    X(sessions, "logins to a target")                                                              \
    X(sessions_chap, "... that proved who they were by CHAP")                                      \
    X(sessions_mutual, "... and asked the target to do so")                                        \
    X(sessions_reinstated, "... in the place of a session that was there")                         \
    X(connections_reinstated, "sessions that went on over another connection")                     \
    X(discoveries, "discovery sessions")                                                           \
    X(logins_refused, "wrong logins, refused")                                                     \
    X(logins_refused_chap, "... for a wrong secret or user")                                       \
    X(logins_timed_out, "logins that came to no end and were ended")                               \
    X(logins_split, "login requests in several PDUs")                                              \
    X(reads, "reads answered with data")                                                           \
    X(writes, "writes done")                                                                       \
    X(writes_immediate, "... with immediate data")                                                 \
    X(writes_unsolicited, "... with unsolicited Data-Out")                                         \
    X(writes_asked, "... with R2Ts")                                                               \
    X(others, "other commands answered")                                                           \
    X(residuals, "reads with a residual")                                                          \
    X(conditions, "commands that had to fail, and did")                                            \
    X(attentions, "unit attentions")                                                               \
    X(volume_errors, "reads and writes that the volume failed")                                    \
    X(full, "commands refused for want of memory")                                                 \
    X(wrong_data, "commands failed for data that did not come as agreed")                          \
    X(aborts, "task management functions answered")                                                \
    X(aborts_hung, "... while the volume answered nobody")                                         \
    X(vanished, "commands that somebody else's reset took")                                        \
    X(pings, "NOPs answered")                                                                      \
    X(pings_of_target, "NOPs of the target")                                                       \
    X(texts, "text requests answered")                                                             \
    X(logouts, "logouts")                                                                          \
    X(logouts_refused, "... that name another connection, or recovery")                            \
    X(rejects, "PDUs rejected")                                                                    \
    X(ignored, "commands outside the window, ignored")                                             \
    X(broken, "connections that the target ended because the host broke the protocol")             \
    X(silences_noticed, "silent hosts whose session the target ended")                             \
    X(floods, "many connections that log in never")                                                \
    X(hangs, "times the volume answered nobody")                                                   \
    X(stops, "servers stopped with sessions left")                                                 \
    X(farewells, "messages that say that the target drops the session")

enum protocol_stat {
#define X(name, what) PSTAT_##name,
    PROTOCOL_STATS(X)
#undef X
        PSTAT_COUNT
};

/* A task, as its initiator sees it. */
#define PROTOCOL_TASK_STATES(X)                                                                    \
    X(unsolicited) /* unsolicited data are still to be sent */                                     \
    X(unasked)     /* more data than that are to be sent, and nobody has asked */                  \
    X(asked)       /* an R2T is open */                                                            \
    X(running)     /* all has been sent */                                                         \
    X(answering)   /* some of the data of a read have come */
#define PROTOCOL_TASK_EVENTS(X)                                                                    \
    X(abort_task)                                                                                  \
    X(abort_task_set)                                                                              \
    X(clear_task_set)                                                                              \
    X(lun_reset)                                                                                   \
    X(warm_reset)                                                                                  \
    X(cold_reset)                                                                                  \
    X(others_reset)                                                                                \
    X(new_session)                                                                                 \
    X(new_connection) X(logout) X(cut_reset) X(cut_shutdown) X(silence) X(wrong_data) X(stop)

/* A connection. */
#define PROTOCOL_PLACES(X)                                                                         \
    X(connecting) X(security) X(challenged) X(operational) X(idle) X(busy) X(leaving)
#define PROTOCOL_BREAKS(X)                                                                         \
    X(reset) X(shutdown) X(silence) X(answer_reset) X(answer_shutdown) X(answer_silence)

#define X(name) TASK_##name,
enum protocol_task_state { PROTOCOL_TASK_STATES(X) TASK_STATES };
#undef X
#define X(name) TASK_EVENT_##name,
enum protocol_task_event { PROTOCOL_TASK_EVENTS(X) TASK_EVENTS };
#undef X
#define X(name) PLACE_##name,
enum protocol_place { PROTOCOL_PLACES(X) PLACES };
#undef X
#define X(name) BREAK_##name,
enum protocol_break { PROTOCOL_BREAKS(X) BREAKS };
#undef X

struct protocol_stats {
    uint64_t count[PSTAT_COUNT];
    uint64_t tasks[TASK_STATES][TASK_EVENTS];
    uint64_t breaks[PLACES][BREAKS];
};

void protocol_stats_add(struct protocol_stats *total, const struct protocol_stats *part);
void protocol_stats_print(const struct protocol_stats *stats);
bool protocol_stats_require(const struct protocol_stats *stats);

#endif
