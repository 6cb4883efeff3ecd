// SPDX-License-Identifier: MPL-2.0
/* Orders: what one loop wants of a connection of another.
 *
 * Only a connection's own loop closes it or takes its session away. Whoever else wants that finds
 * the connection in the register, under the server's lock, and gives an order: a task for the loop
 * of the connection, which stays in memory until the order has been carried out (it is *pinned*),
 * though it may have been closed by then, which is no harm.
 *
 *     loop of the login                         loop of the session in its way
 *     session_open(): LOGIN_WAITS ── order ───> commands dropped, nexus closed; or session given up
 *     login_resume()              <─── back ──  connection closed
 *
 * The login reads nothing meanwhile. It looks again when it goes on, since others may have been
 * quicker; each time round somebody's login has come to its end. If it was closed meanwhile (its
 * deadline goes on), a session that was given up for it ends. */
#include "iscsi/internal.h"

struct iscsi_order {
    struct list in_orders;
    struct env_task task;
    struct iscsi_connection *to, *by; /* pinned; `by` may be NULL */
    const char *why;
    bool takes;
    struct iscsi_session *session; /* given up */
    struct iscsi_parameters parameters;
};

static void order_end(struct iscsi_order *order, struct iscsi_server *server) {
    mem_free(order);
    server_lock(server);
    server->orders--;
    server_unlock(server);
    server_something_gone(server);
    server_release(server);
}

static void order_back(struct env_task *task) {
    struct iscsi_order *order = CONTAINER_OF(task, struct iscsi_order, task);
    struct iscsi_connection *by = order->by;
    struct iscsi_server *server = by->server;
    if (by->stage != CONNECTION_CLOSING) {
        login_resume(by, order->session, &order->parameters);
    } else if (order->session != NULL) {
        session_close(order->session);
    }
    connection_unpin(by);
    order_end(order, server);
}

static void order_run(struct iscsi_order *order) {
    struct iscsi_connection *to = order->to;
    struct iscsi_server *server = to->server;
    if (order->takes && to->session != NULL) {
        order->parameters = to->keys.parameters;
        order->session = session_give_up(to);
    }
    connection_close(to, order->why);
    connection_unpin(to);
    if (order->by == NULL) {
        order_end(order, server);
    } else {
        order->task.run = order_back;
        env_post(order->by->loop->env, &order->task);
    }
}

static void order_arrived(struct env_task *task) {
    order_run(CONTAINER_OF(task, struct iscsi_order, task));
}

struct iscsi_order *order_close(struct iscsi_connection *to, const char *why) {
    struct iscsi_order *order = MEM_NEW(struct iscsi_order);
    list_init(&order->in_orders);
    order->task.run = order_arrived;
    order->to = to;
    order->why = why;
    to->pins++;
    to->server->orders++;
    server_hold(to->server);
    return order;
}

struct iscsi_order *order_give_way(struct iscsi_connection *to, struct iscsi_connection *by,
                                   bool takes, const char *why) {
    struct iscsi_order *order = order_close(to, why);
    order->by = by;
    order->takes = takes;
    by->pins++;
    return order;
}

void order_go(struct iscsi_order *order, const struct iscsi_loop *own) {
    if (order->to->loop == own) {
        order_run(order);
    } else {
        env_post(order->to->loop->env, &order->task);
    }
}

void order_add(struct list *orders, struct iscsi_order *order) {
    list_append(orders, &order->in_orders);
}

void orders_go(struct list *orders, const struct iscsi_loop *own) {
    struct list *node;
    while ((node = list_pop(orders)) != NULL) {
        order_go(CONTAINER_OF(node, struct iscsi_order, in_orders), own);
    }
}
