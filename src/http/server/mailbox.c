/* What comes to a loop from other threads and from clients: wakes of its requests, and descriptors that clients hand
 * over. A wake never blocks, and holds a reference until its loop has visited it. Any thread wakes; the loop alone
 * visits. */
#include "http/server/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "http/server/exchange.h"
#include "http/server/state.h"

/* --- wake queue --------------------------------------------------------------------------------------------------- */

int gb_wake_queue_init(struct gb_wake_queue *queue, struct gb_error *err) {
    *queue = (struct gb_wake_queue){.event_fd = -1};
    gb_mutex_init(&queue->lock);
    queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->event_fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "eventfd", errno);
    return 0;
}

void gb_wake_queue_done(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    while ((ex = gb_wake_queue_take(queue)))
        gb_exchange_unref(ex);
    if (queue->event_fd >= 0)
        close(queue->event_fd);
    pthread_mutex_destroy(&queue->lock);
}

void gb_wake_queue_signal(struct gb_wake_queue *queue) {
    uint64_t one = 1;

    /* Full means that a signal is already pending. */
    if (write(queue->event_fd, &one, sizeof(one)) < 0)
        return;
}

bool gb_wake_queue_any(struct gb_wake_queue *queue) {
    bool any;

    pthread_mutex_lock(&queue->lock);
    any = queue->head != NULL;
    pthread_mutex_unlock(&queue->lock);
    return any;
}

bool gb_wake_queue_rest(struct gb_wake_queue *queue) {
    atomic_store(&queue->awake, false);
    return gb_wake_queue_any(queue);
}

void gb_wake_queue_awake(struct gb_wake_queue *queue) {
    atomic_store(&queue->awake, true);
}

static void clear(struct gb_wake_queue *queue) {
    uint64_t count;

    if (read(queue->event_fd, &count, sizeof(count)) < 0)
        return;
}

unsigned gb_wake_queue_visit(struct gb_wake_queue *queue, bool had_event) {
    unsigned count;

    if (had_event)
        clear(queue);
    pthread_mutex_lock(&queue->lock);
    count = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return count;
}

/* An exchange that is put behind others is not signalled. */
void gb_wake_queue_leave(struct gb_wake_queue *queue) {
    bool more;

    pthread_mutex_lock(&queue->lock);
    more = queue->head != NULL;
    pthread_mutex_unlock(&queue->lock);
    if (more && !atomic_load(&queue->awake))
        gb_wake_queue_signal(queue);
}

static void put(struct gb_wake_queue *queue, struct gb_exchange *ex) {
    bool was_empty;

    ex->wake_next = NULL;
    pthread_mutex_lock(&queue->lock);
    was_empty = queue->head == NULL;
    if (was_empty)
        queue->head = ex;
    else
        queue->tail->wake_next = ex;
    queue->tail = ex;
    queue->count++;
    pthread_mutex_unlock(&queue->lock);
    /* After the lock: a thread that goes to rest meanwhile finds the exchange. */
    if (was_empty && !atomic_load(&queue->awake))
        gb_wake_queue_signal(queue);
}

/* Its owner may be another queue by now. */
static struct gb_exchange *pop(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    pthread_mutex_lock(&queue->lock);
    ex = queue->head;
    if (ex) {
        queue->count--;
        queue->head = ex->wake_next;
        if (!queue->head)
            queue->tail = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return ex;
}

struct gb_exchange *gb_wake_queue_take(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    while ((ex = pop(queue))) {
        struct gb_wake_queue *owner;

        pthread_mutex_lock(&ex->wake_lock);
        owner = ex->owner;
        ex->queued = owner && owner != queue;
        if (ex->queued)
            put(owner, ex); /* it moved to another thread meanwhile; the reference goes along */
        pthread_mutex_unlock(&ex->wake_lock);
        if (owner == queue)
            return ex;
        if (!owner)
            gb_exchange_unref(ex);
    }
    return NULL;
}

void gb_http_wake(struct gb_http_request *request) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_exchange *forward;

    pthread_mutex_lock(&ex->wake_lock);
    forward = ex->forward ? gb_exchange_ref(ex->forward) : NULL;
    if (!forward && ex->owner && !ex->queued) {
        ex->queued = true;
        gb_exchange_ref(ex);
        put(ex->owner, ex);
    }
    pthread_mutex_unlock(&ex->wake_lock);
    if (forward) {
        gb_http_wake(&forward->req);
        gb_exchange_unref(forward);
    }
}

/* --- fd mailbox --------------------------------------------------------------------------------------------------- */

/* Descriptors from clients. The HTTP connection itself takes no descriptors, because its readers would drop them. So
 * the client gets one end of a pair of sockets, with 103 as any other descriptor, and sends its descriptor over that.
 *
 * The descriptor is client-supplied, and its close may take as long as the client likes. It is received without waiting
 * and closed by the closer alone. So is our end of the pair, in which more may be waiting. */

/* As many as the kernel takes in one message: the kernel would close others on our thread. */
#define FDS_MAX 253

enum mailbox_state { WAITING, HERE, WRONG, TAKEN };

struct gb_http_fd_mailbox {
    struct gb_http_fd_mailbox *next;
    struct gb_http_server *server;
    struct gb_http_request *request; /* a reference */
    uint64_t id;
    int sock;
    /* Under the server's mailboxes.lock: */
    enum mailbox_state state;
    int fd;
    struct gb_error error;
};

/* --- the set ------------------------------------------------------------------------------------------------------ */

int gb_fd_mailboxes_init(struct gb_http_server *server, struct gb_error *err) {
    gb_mutex_init(&server->fd_mailboxes.lock);
    server->fd_mailboxes.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return server->fd_mailboxes.epoll_fd < 0 ? gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1", errno) : 0;
}

void gb_fd_mailboxes_done(struct gb_http_server *server) {
    if (server->fd_mailboxes.epoll_fd >= 0)
        close(server->fd_mailboxes.epoll_fd);
    pthread_mutex_destroy(&server->fd_mailboxes.lock);
}

static int drains(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping and takes no descriptors");
}

static int enter_locked(struct gb_fd_mailboxes *all, struct gb_http_fd_mailbox *box, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT};

    if (atomic_load(&box->server->draining))
        return drains(err);
    box->id = ++all->last_id;
    ev.data.u64 = box->id;
    if (epoll_ctl(all->epoll_fd, EPOLL_CTL_ADD, box->sock, &ev) < 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "epoll_ctl", errno);
    box->next = all->first;
    all->first = box;
    return 0;
}

static int enter(struct gb_http_fd_mailbox *box, struct gb_error *err) {
    struct gb_fd_mailboxes *all = &box->server->fd_mailboxes;
    int r;

    pthread_mutex_lock(&all->lock);
    r = enter_locked(all, box, err);
    pthread_mutex_unlock(&all->lock);
    return r;
}

static void leave(struct gb_http_fd_mailbox *box) {
    struct gb_fd_mailboxes *all = &box->server->fd_mailboxes;
    struct gb_http_fd_mailbox **at = &all->first;

    pthread_mutex_lock(&all->lock);
    while (*at != box)
        at = &(*at)->next;
    *at = box->next;
    epoll_ctl(all->epoll_fd, EPOLL_CTL_DEL, box->sock, NULL);
    pthread_mutex_unlock(&all->lock);
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

/* The descriptors of a message, at most FDS_MAX. */
static size_t fds_of(struct msghdr *msg, int *ret) {
    struct cmsghdr *c;
    size_t count = 0;

    for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n =
            c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        memcpy(ret + count, CMSG_DATA(c), n * sizeof(int));
        count += n;
    }
    return count;
}

static void judge(struct gb_http_fd_mailbox *box, ssize_t bytes, size_t count, bool cut, int code) {
    struct gb_error *err = &box->error;

    if (bytes < 0)
        gb_error_errno(err, GB_ERR_CANNOT_ADOPT, "recvmsg", code);
    else if (cut)
        gb_error_set(err, GB_ERR_SATURATED,
                     "the daemon has reached its limit of open descriptors and could not take this one; try again");
    else if (count == 0 && bytes == 0)
        gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                     "the socket that came with 103 was closed before a descriptor came over it: send one with "
                     "SCM_RIGHTS, then wait for the answer");
    else if (count != 1)
        gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                     "%zu descriptors came over the socket that came with 103: send one byte and one descriptor, with "
                     "SCM_RIGHTS, in one message",
                     count);
    box->state = err->code == GB_OK ? HERE : WRONG;
}

/* Receives one message, and no other. */
static void receive_locked(struct gb_http_fd_mailbox *box) {
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct gb_closer *closer = box->server->config.closer;
    char data[64];
    struct iovec part = {.iov_base = data, .iov_len = sizeof(data)};
    struct msghdr msg = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t bytes = recvmsg(box->sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int code = errno;
    int fd[FDS_MAX];
    size_t count = bytes >= 0 ? fds_of(&msg, fd) : 0;

    judge(box, bytes, count, bytes >= 0 && (msg.msg_flags & MSG_CTRUNC), code);
    gb_closer_give_back(closer, FDS_MAX - count);
    if (box->state == HERE)
        box->fd = fd[0];
    while (box->state != HERE && count > 0)
        gb_closer_put(closer, fd[--count]);
}

static void visit(struct gb_http_server *server, uint64_t id) {
    struct gb_fd_mailboxes *all = &server->fd_mailboxes;
    struct gb_http_fd_mailbox *box;

    pthread_mutex_lock(&all->lock);
    for (box = all->first; box && box->id != id; box = box->next)
        ;
    if (box && box->state == WAITING) {
        receive_locked(box);
        gb_http_wake(box->request);
    }
    pthread_mutex_unlock(&all->lock);
}

void gb_fd_mailboxes_event(struct gb_http_server *server) {
    struct epoll_event events[16];
    int n = epoll_wait(server->fd_mailboxes.epoll_fd, events, 16, 0);
    int i;

    for (i = 0; i < n; i++)
        visit(server, events[i].data.u64); /* the others raise the next event */
}

/* A client that never sends its descriptor does not hold the end of the daemon up. */
void gb_fd_mailboxes_drain(struct gb_http_server *server) {
    struct gb_fd_mailboxes *all = &server->fd_mailboxes;
    struct gb_http_fd_mailbox *box;

    pthread_mutex_lock(&all->lock);
    for (box = all->first; box; box = box->next) {
        if (box->state != WAITING)
            continue;
        drains(&box->error);
        box->state = WRONG;
        gb_closer_give_back(server->config.closer, FDS_MAX);
        gb_http_wake(box->request);
    }
    pthread_mutex_unlock(&all->lock);
}

/* --- for handlers ------------------------------------------------------------------------------------------------- */

static int not_sent(int code, struct gb_error *err) {
    if (code == ETOOMANYREFS)
        return gb_error_set(err, GB_ERR_SATURATED,
                            "clients do not take their descriptors, and the system permits no more on their way; try "
                            "again");
    return gb_error_errno(err, GB_ERR_SATURATED, "sendmsg", code);
}

/* Sends the client its end at once. */
static int hand_over(struct gb_http_fd_mailbox *box, const struct gb_exchange *ex, struct gb_error *err) {
    int pair[2];
    int code = 0;

    if (ex->fd < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "the request has no connection of a UNIX socket");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "socketpair", errno);
    box->sock = pair[0];
    if (enter(box, err) < 0) {
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    if (gb_peer_hand(ex->fd, &pair[1], 1) < 0)
        code = errno;
    close(pair[1]);
    if (code == 0)
        return 0;
    leave(box);
    close(pair[0]);
    return not_sent(code, err);
}

int gb_http_fd_mailbox_open(struct gb_http_request *request, struct gb_http_fd_mailbox **ret, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_closer *closer = ex->server->config.closer;
    struct gb_http_fd_mailbox *box;

    if (!request->peer || !closer)
        return gb_error_set(err, GB_ERR_INTERNAL, "only clients on UNIX sockets can hand over descriptors");
    if (!gb_closer_reserve(closer, FDS_MAX + 1))
        return gb_error_set(err, GB_ERR_SATURATED,
                            "too many clients are handing over descriptors, or descriptors that they handed over do "
                            "not close; try again");
    box = calloc(1, sizeof(*box));
    if (box) {
        box->server = ex->server;
        box->fd = -1;
        box->request = gb_http_request_ref(request);
        if (hand_over(box, ex, err) == 0) {
            *ret = box;
            return 0;
        }
        gb_http_request_unref(request);
    } else {
        gb_error_memory(err, "request");
    }
    free(box);
    gb_closer_give_back(closer, FDS_MAX + 1);
    return -1;
}

int gb_http_fd_mailbox_take(struct gb_http_fd_mailbox *box, int *ret_fd, struct gb_error *err) {
    struct gb_fd_mailboxes *all = &box->server->fd_mailboxes;
    int r = -1;

    pthread_mutex_lock(&all->lock);
    if (box->state == WAITING) {
        r = 0;
    } else if (box->state == HERE) {
        r = 1;
        if (ret_fd) {
            *ret_fd = box->fd;
            box->fd = -1;
            box->state = TAKEN;
        }
    } else {
        gb_error_move(err, &box->error);
        gb_error_set(err, GB_ERR_INTERNAL, "the descriptor was taken before");
    }
    pthread_mutex_unlock(&all->lock);
    return r;
}

void gb_http_fd_mailbox_free(struct gb_http_fd_mailbox *box) {
    struct gb_closer *closer;

    if (!box)
        return;
    closer = box->server->config.closer;
    leave(box);
    if (box->state == WAITING)
        gb_closer_give_back(closer, FDS_MAX);
    if (box->fd >= 0)
        gb_closer_put(closer, box->fd);
    gb_closer_put(closer, box->sock);
    gb_http_request_unref(box->request);
    free(box);
}
