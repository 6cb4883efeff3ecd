// SPDX-License-Identifier: MPL-2.0
/* The world of the protocol model: a server with two targets, its hosts, and what happens to them
 * from outside. See protocol.h. */
#include "protocol.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define SHARED "iqn.2025-01.org.example:shared"
#define OWN "iqn.2025-01.org.example:own"

enum { WORLD_SECONDS_MAX = 20000, PORTALS_MAX = 3 };

/* ---- failing ---- */

bool protocol_has_failed(const struct protocol_world *w) {
    return w->result->failed;
}

void protocol_fail(struct protocol_world *w, const char *format, ...) {
    if (w->result->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(w->result->why, sizeof(w->result->why), format, args);
    va_end(args);
    w->result->failed = true;
    env_sim_note(w->env, 0, "FAILED: %s", w->result->why);
}

/* ---- limits ---- */

void protocol_check_limits(struct protocol_world *w) {
    const struct iscsi_server *server = w->server;
    uint32_t sessions = 0, logins = 0;
    if (w->stopped) {
        return;
    }
    LIST_FOR_EACH(it, &server->connections) {
        const struct iscsi_connection *c = CONTAINER_OF(it, struct iscsi_connection, in_server);
        logins += c->stage == CONNECTION_LOGIN;
        if (c->tx_count > ISCSI_TX_QUEUE_MAX + 64) {
            protocol_fail(w, "%u answers wait for one connection", c->tx_count);
        }
        if (c->session == NULL) {
            continue;
        }
        sessions++;
        if (c->session->command_count > w->commands_max ||
            c->session->immediate_count > ISCSI_IMMEDIATE_MAX ||
            c->memory->bytes > ISCSI_CONNECTION_MEMORY_BYTES) {
            protocol_fail(w, "%s holds %u commands, %u immediate ones and %u bytes",
                          c->session->initiator, c->session->command_count,
                          c->session->immediate_count, (unsigned)c->memory->bytes);
        }
    }
    /* Hosts 1 … share no address, and have one flood at a time each. */
    if (sessions != server->session_count || logins != server->login_count ||
        logins > w->host_count * ISCSI_LOGINS_PER_ADDRESS_MAX) {
        protocol_fail(w, "%u sessions and %u logins are there, %u and %u are counted", sessions,
                      logins, server->session_count, server->login_count);
    }
}

/* ---- resets ---- */

static bool shares(const struct host *host) {
    return !host->behaves;
}

/* Commands that are in hand now may be gone, and those that come until it is over. */
void protocol_reset_begins(struct protocol_world *w, const struct host *by, bool ends_sessions) {
    w->resets_open++;
    w->cold_resets_open += ends_sessions;
    for (uint32_t i = 0; i < w->host_count; i++) {
        struct host *host = &w->hosts[i];
        if (!shares(host)) {
            continue;
        }
        host->attention_possible = true;
        host->attention_caused_ns = env_now_ns(w->env) + NS_PER_S;
        if (host == by) {
            continue;
        }
        tasks_cover(host, TASK_EVENT_others_reset);
        for (uint32_t j = 0; j < HOST_COMMANDS_MAX; j++) {
            host->commands[j].may_vanish |= host->commands[j].used;
        }
        if (ends_sessions) {
            host->session_uncertain = true;
            if (host->conn != NULL) {
                host->conn->may_end = "the target was reset";
            }
        }
    }
}

/* The function may still be on its way, if its answer was lost. */
static void reset_is_over(struct env_timer *timer) {
    struct protocol_reset *reset = CONTAINER_OF(timer, struct protocol_reset, timer);
    reset->world->resets_open--;
    reset->world->cold_resets_open -= reset->ends_sessions;
    mem_free(reset);
}

void protocol_reset_ended(struct protocol_world *w, bool ends_sessions) {
    struct protocol_reset *reset = MEM_NEW(struct protocol_reset);
    reset->world = w;
    reset->ends_sessions = ends_sessions;
    reset->timer.fire = reset_is_over;
    env_timer_arm(w->env, &reset->timer, env_now_ns(w->env) + NS_PER_S / 2);
}

/* ---- the world ---- */

static void on_event(void *owner, enum iscsi_event kind, const char *text) {
    (void)kind;
    struct protocol_world *w = owner;
    (void)snprintf(w->event, sizeof(w->event), "%s", text);
    env_sim_note(w->env, strlen(text), "server: %s", text);
}

static void on_stopped(void *owner) {
    ((struct protocol_world *)owner)->stopped = true;
}

/* Who may use the shared target: all hosts but 0 and the one that is shut out now. */
struct shared_access {
    struct iscsi_rule rules[HOSTS_MAX];
    struct iscsi_user user;
    struct iscsi_access access;
};

static void shared_access(const struct protocol_world *w, struct shared_access *ret) {
    uint32_t count = 0;
    for (uint32_t i = 1; i < w->host_count; i++) {
        if (i != w->shut_out) {
            ret->rules[count++] = (struct iscsi_rule){.initiator = w->hosts[i].name,
                                                      .user = i % 2 == 1 ? "alice" : NULL};
        }
    }
    ret->user = (struct iscsi_user){.name = "alice",
                                    .secret = "host-secret-of-it",
                                    .mutual_name = "target",
                                    .mutual_secret = "target-secret-0"};
    ret->access = (struct iscsi_access){
        .rules = ret->rules, .rule_count = count, .users = &ret->user, .user_count = 1};
}

/* The LUN is unmapped from a host for a while: its session ends, it cannot come back, and nobody
 * else notices. */
static void shut_out(struct protocol_world *w, uint32_t index) {
    struct shared_access shared;
    struct errmsg message = {0};
    w->shut_out = index;
    w->shut_until_ns = env_now_ns(w->env) + rng_below(&w->rng, 500) * NS_PER_MS;
    if (index != 0) {
        struct host *host = &w->hosts[index];
        host->session_uncertain = true;
        host->shut_ns = UINT64_MAX;
        if (host->conn != NULL) {
            tasks_cover(host, TASK_EVENT_unmapped);
            host->conn->may_end = "its LUN is unmapped";
        }
    }
    shared_access(w, &shared);
    if (iscsi_target_set_access(w->server, SHARED, &shared.access, &message) != OK) {
        protocol_fail(w, "%s", message.text);
    }
}

static void add_targets(struct protocol_world *w) {
    struct iscsi_rule own = {.initiator = w->hosts[0].name};
    const struct iscsi_access alone = {.rules = &own, .rule_count = 1};
    struct shared_access shared;
    shared_access(w, &shared);
    struct errmsg message = {0};
    w->shared = scsi_target_new(w->env);
    w->own = scsi_target_new(w->env);
    for (uint32_t i = 0; i < 2; i++) {
        protocol_volume_init(&w->volumes[i], w, i + 1);
        if (scsi_lun_add(i == 0 ? w->shared : w->own, 0, &w->volumes[i].door, &w->volumes[i].info,
                         &message) != OK) {
            protocol_fail(w, "%s", message.text);
        }
    }
    for (uint32_t i = 0; i < w->portal_count; i++) {
        char portal[32];
        (void)snprintf(portal, sizeof(portal), PROTOCOL_PORTAL ",1", i);
        if (iscsi_portal_add_on(w->server, i, portal, &message) != OK) {
            protocol_fail(w, "%s", message.text);
        }
    }
    if (iscsi_target_add(w->server, SHARED, w->shared, &shared.access, &message) != OK ||
        iscsi_target_add(w->server, OWN, w->own, &alone, &message) != OK) {
        protocol_fail(w, "%s", message.text);
    }
    if (rng_chance(&w->rng, 1, 3)) {
        w->volumes[0].errors = 20;
    }
    if (rng_chance(&w->rng, 1, 3)) {
        w->volumes[0].delay_us_max = 300000;
    }
}

static void add_hosts(struct protocol_world *w) {
    w->host_count = (uint32_t)rng_between(&w->rng, 2, HOSTS_MAX);
    uint64_t sectors = LUN_SECTORS / HOSTS_MAX;
    for (uint32_t i = 0; i < w->host_count; i++) {
        struct host *host = &w->hosts[i];
        *host = (struct host){
            .world = w,
            .index = i,
            .behaves = i == 0,
            .isid = {0x80, 0, 0, 0, 0, (uint8_t)i},
            .target = i == 0 ? OWN : SHARED,
            .volume = &w->volumes[i == 0],
            .first_sector = i * sectors,
            .sectors = sectors,
            .waited_itt = ISCSI_TAG_NONE,
            .is_running = true,
            .actions = (uint32_t)rng_between(&w->rng, 100, 500),
        };
        rng_init(&host->rng, rng_next(&w->rng));
        (void)snprintf(host->name, sizeof(host->name), "iqn.2025-01.org.example:host%u", i);
        (void)snprintf(host->address, sizeof(host->address), "198.51.100.%u:40000", 10 + i);
    }
}

static void world_init(struct protocol_world *w, const struct protocol_options *options) {
    static const uint32_t rates[] = {0, 0, 100, 1000};
    rng_init(&w->rng, options->seed * 0x9e3779b97f4a7c15ull + 0x50);
    oracle_init(&w->oracle);
    w->link = env_sim_link_add(
        w->env, &(struct sim_link_options){
                    .mbit_s = rates[rng_below(&w->rng, ARRAY_COUNT(rates))],
                    .latency_ns = rng_below(&w->rng, 500) * NS_PER_US,
                    .jitter_ns = rng_chance(&w->rng, 1, 2) ? 0 : 100 * NS_PER_US,
                    .buffer_bytes = rng_chance(&w->rng, 1, 2) ? 0 : 5000,
                    .pieces = rng_chance(&w->rng, 1, 2) ? 0 : (uint32_t)rng_between(&w->rng, 2, 9),
                });
    w->commands_max =
        rng_chance(&w->rng, 1, 2) ? ISCSI_COMMANDS_MAX : (uint32_t)rng_between(&w->rng, 2, 16);
    w->memory_bytes = rng_chance(&w->rng, 1, 3) ? 2 << 20 : 0;
    /* The target's loops are all this one: what one of them asks of another comes a turn later, and
     * everything else may have come between. */
    struct env *const loops[PORTALS_MAX - 1] = {w->env, w->env};
    w->portal_count = (uint32_t)rng_between(&w->rng, 1, PORTALS_MAX);
    const struct iscsi_options server = {.loops = loops,
                                         .loop_count = w->portal_count - 1,
                                         .commands_max = w->commands_max,
                                         .memory_bytes = w->memory_bytes,
                                         .event = on_event,
                                         .event_owner = w};
    w->server = iscsi_server_new(w->env, &server);
    add_hosts(w);
    add_targets(w);
    w->hangs_left = (uint32_t)rng_below(&w->rng, 4);
    w->unmaps_left = (uint32_t)rng_below(&w->rng, 4);
    w->hosts_running = w->hosts_left = w->host_count;
    for (uint32_t i = 0; i < w->host_count; i++) {
        fiber_start(w->env, host_main, &w->hosts[i]);
    }
}

/* From outside: now and then the volume of the shared target answers nobody. */
static void disturb(struct protocol_world *w) {
    uint64_t now_ns = env_now_ns(w->env);
    if (w->hangs_left > 0 && now_ns >= w->volumes[0].hangs_until_ns && rng_chance(&w->rng, 1, 8)) {
        w->hangs_left--;
        uint64_t ms = rng_chance(&w->rng, 1, 3) ? 30000 : rng_below(&w->rng, 500);
        w->volumes[0].hangs_until_ns = now_ns + ms * NS_PER_MS;
        w->hung_ns = w->volumes[0].hangs_until_ns;
        COUNT(w, hangs);
    }
    if (w->shut_out != 0 && now_ns >= w->shut_until_ns) {
        w->hosts[w->shut_out].shut_ns = now_ns;
        shut_out(w, 0);
    } else if (w->shut_out == 0 && w->unmaps_left > 0 && rng_chance(&w->rng, 1, 8)) {
        w->unmaps_left--;
        shut_out(w, (uint32_t)rng_between(&w->rng, 1, w->host_count - 1));
        COUNT(w, unmaps);
    }
    protocol_check_limits(w);
}

static bool hosts_have_run(void *ctx) {
    const struct protocol_world *w = ctx;
    return w->hosts_running == 0 || protocol_has_failed(w);
}

static bool hosts_have_left(void *ctx) {
    const struct protocol_world *w = ctx;
    return w->hosts_left == 0;
}

static bool server_has_stopped(void *ctx) {
    const struct protocol_world *w = ctx;
    return w->stopped || protocol_has_failed(w);
}

static void run(struct protocol_world *w) {
    uint64_t last_ns = env_now_ns(w->env) + WORLD_SECONDS_MAX * NS_PER_S;
    while (!hosts_have_run(w) && env_now_ns(w->env) < last_ns) {
        (void)env_sim_run_until(w->env, env_now_ns(w->env) + rng_below(&w->rng, 100) * NS_PER_MS,
                                hosts_have_run, w);
        disturb(w);
    }
    for (uint32_t i = 0; i < w->host_count && !hosts_have_run(w); i++) {
        const struct host *host = &w->hosts[i];
        if (host->is_running) {
            protocol_fail(w,
                          "host %u is still running after %u s, with %u things to do and %u "
                          "commands in hand",
                          i, WORLD_SECONDS_MAX, host->actions, host->in_hand);
        }
    }
}

/* A stop ends every session, telling those that are left, in time. */
static void stop(struct protocol_world *w) {
    uint64_t deadline_ns = env_now_ns(w->env) + 2 * NS_PER_S;
    for (uint32_t i = 0; i < w->host_count; i++) {
        struct host *host = &w->hosts[i];
        if (host->conn != NULL && !host->conn->ended) {
            tasks_cover(host, TASK_EVENT_stop);
            COUNT(w, stops);
            host->conn->may_end = "the server stops";
        }
    }
    w->stopping = true;
    iscsi_server_stop(w->server, deadline_ns, on_stopped, w);
    (void)env_sim_run_until(w->env, deadline_ns + NS_PER_S, server_has_stopped, w);
    if (!w->stopped) {
        protocol_fail(w, "the server does not stop");
        return;
    }
    (void)env_sim_run_until(w->env, deadline_ns + 60 * NS_PER_S, hosts_have_left, w);
    if (w->hosts_left != 0) {
        protocol_fail(w, "%u hosts do not come to an end", w->hosts_left);
        return;
    }
    protocol_volume_let_go(&w->volumes[0]);
    protocol_volume_let_go(&w->volumes[1]);
    (void)env_sim_run_until(w->env, env_now_ns(w->env) + NS_PER_S, NULL, NULL);
    iscsi_server_free(w->server);
    if (scsi_target_outstanding(w->shared) + scsi_target_outstanding(w->own) != 0) {
        protocol_fail(w, "tasks are left");
        return;
    }
    scsi_target_free(w->shared);
    scsi_target_free(w->own);
    protocol_volume_done(&w->volumes[0]);
    protocol_volume_done(&w->volumes[1]);
    oracle_done(&w->oracle);
    if (!list_is_empty(&w->scope.allocations)) {
        protocol_fail(w, "memory is left");
    }
}

static void tell_trace(void *owner, const char *line) {
    (void)owner;
    puts(line);
}

void protocol_run(const struct protocol_options *options, struct protocol_result *ret_result) {
    struct protocol_world *w = MEM_NEW(struct protocol_world);
    memset(ret_result, 0, sizeof(*ret_result));
    w->result = ret_result;
    w->env = env_sim_new(&(struct env_sim_options){.seed = options->seed,
                                                   .trace = options->trace ? tell_trace : NULL});
    COUNT(w, worlds);
    mem_scope_init(&w->scope);
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    world_init(w, options);
    run(w);
    if (!protocol_has_failed(w)) {
        stop(w);
    }
    mem_scope_enter(outer);
    ret_result->virtual_ns = env_now_ns(w->env);
    ret_result->trace_hash = env_sim_trace_hash(w->env);
    env_sim_free(w->env); /* fibers and all, if it failed */
    mem_scope_drop(&w->scope);
    mem_free(w);
}
