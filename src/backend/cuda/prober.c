/* The process that starts probes. The daemon's end of the socket is the only way to it, and a probe of a pool is all
 * that it does. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/internal.h"

#define ASK_FD 3

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
};

/* The daemon's end; -1: there is no prober. */
static int prober_fd = -1;
static pthread_mutex_t prober_lock = PTHREAD_MUTEX_INITIALIZER;

static bool send_request(int fd, struct gb_cuda_probe_request request, int pool_fd) {
    struct iovec part = {&request, sizeof(request)};
    union control control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};

    memcpy(CMSG_DATA(&control.head), &pool_fd, sizeof(pool_fd));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(request);
}

static bool receive_request(int fd, struct gb_cuda_probe_request *ret, int *ret_pool_fd) {
    struct iovec part = {ret, sizeof(*ret)};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
    ssize_t n;

    while ((n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    if (n != (ssize_t)sizeof(*ret) || message.msg_controllen < CMSG_LEN(sizeof(int)))
        return false;
    memcpy(ret_pool_fd, CMSG_DATA(&control.head), sizeof(*ret_pool_fd));
    return true;
}

/* A terminal and a service manager send signals to both processes: this one goes after the daemon. */
int gb_cuda_prober_main(int argc, char **argv) {
    struct gb_cuda_probe_request request;
    struct gb_cuda_probe_result result;
    int pool_fd;

    if (argc == 0 || strcmp(argv[0], GB_CUDA_PROBER) != 0)
        return -1;
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)fcntl(ASK_FD, F_SETFD, FD_CLOEXEC);
    while (receive_request(ASK_FD, &request, &pool_fd)) {
        gb_cuda_probe_run(&request, pool_fd, &result);
        close(pool_fd);
        if (send(ASK_FD, &result, sizeof(result), MSG_NOSIGNAL) != (ssize_t)sizeof(result))
            break;
    }
    return EXIT_SUCCESS;
}

int gb_cuda_prober_start(struct gb_error *err) {
    char *argv[] = {(char[]){GB_CUDA_PROBER}, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    int high;
    pid_t pid;
    int r = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socketpair", errno);
    high = fcntl(ends[1], F_DUPFD_CLOEXEC, ASK_FD + 1);
    if (high < 0)
        r = errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, high, ASK_FD);
    if (r == 0)
        r = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (high >= 0)
        close(high);
    if (r == 0)
        prober_fd = ends[0];
    else
        close(ends[0]);
    return r == 0 ? 0 : gb_error_errno(err, GB_ERR_INTERNAL, "posix_spawn", r);
}

bool gb_cuda_prober_ask(const struct gb_cuda_probe_request *what, int pool_fd, struct gb_cuda_probe_result *ret) {
    ssize_t n = -1;

    if (prober_fd < 0)
        return false;
    *ret = (struct gb_cuda_probe_result){.error = ECONNRESET};
    pthread_mutex_lock(&prober_lock);
    if (send_request(prober_fd, *what, pool_fd))
        while ((n = recv(prober_fd, ret, sizeof(*ret), 0)) < 0 && errno == EINTR)
            continue;
    pthread_mutex_unlock(&prober_lock);
    if (n != (ssize_t)sizeof(*ret))
        ret->error = ECONNRESET;
    return true;
}
