/* The process that starts probes. The daemon's end of the socket is the only way to it, and a probe of a pool is all
 * that it does. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/internal.h"

#define ASK_FD 3
#define FDS 2 /* of a request: the pool, and where the answer goes */

/* Tells this process the socket to its prober. */
#define VARIABLE "GPUBUFD_PROBER_FD"

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(FDS * sizeof(int))];
};

static bool send_request(int fd, struct gb_cuda_probe_request request, const int fds[FDS]) {
    struct iovec part = {&request, sizeof(request)};
    union control control = {.head = {CMSG_LEN(FDS * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};

    memcpy(CMSG_DATA(&control.head), fds, FDS * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(request);
}

static bool receive_request(int fd, struct gb_cuda_probe_request *ret, int ret_fds[FDS]) {
    struct iovec part = {ret, sizeof(*ret)};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
    ssize_t n;

    while ((n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    if (n != (ssize_t)sizeof(*ret) || message.msg_controllen < CMSG_LEN(FDS * sizeof(int)))
        return false;
    memcpy(ret_fds, CMSG_DATA(&control.head), FDS * sizeof(int));
    return true;
}

/* A terminal and a service manager send signals to both processes: this one goes after the daemon. */
int gb_cuda_prober_main(int argc, char **argv) {
    struct gb_cuda_probe_request request;
    struct gb_cuda_probe_result result;
    int fds[FDS];

    if (argc == 0 || strcmp(argv[0], GB_CUDA_PROBER) != 0)
        return -1;
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)fcntl(ASK_FD, F_SETFD, FD_CLOEXEC);
    while (receive_request(ASK_FD, &request, fds)) {
        gb_cuda_probe_run(&request, fds[0], &result);
        (void)send(fds[1], &result, sizeof(result), MSG_NOSIGNAL);
        close(fds[0]);
        close(fds[1]);
    }
    return EXIT_SUCCESS;
}

static int start(int socket) {
    char *argv[] = {(char[]){GB_CUDA_PROBER}, NULL};
    int high = fcntl(socket, F_DUPFD_CLOEXEC, ASK_FD + 1); /* a descriptor that is ASK_FD already would be closed */
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r;

    if (high < 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, high, ASK_FD);
    r = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(high);
    return r;
}

int gb_cuda_prober_start(struct gb_error *err) {
    char text[16];
    int ends[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socketpair", errno);
    r = start(ends[1]);
    close(ends[1]);
    snprintf(text, sizeof(text), "%d", ends[0]);
    if (r == 0 && setenv(VARIABLE, text, 1) < 0)
        r = errno;
    if (r == 0)
        return 0;
    close(ends[0]);
    return gb_error_errno(err, GB_ERR_INTERNAL, "posix_spawn", r);
}

bool gb_cuda_prober_ask(const struct gb_cuda_probe_request *what, int pool_fd, struct gb_cuda_probe_result *ret) {
    const char *text = getenv(VARIABLE);
    ssize_t n = -1;
    int ends[2];

    if (!text)
        return false;
    *ret = (struct gb_cuda_probe_result){.error = ECONNRESET};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        ret->error = errno;
        return true;
    }
    n = send_request(atoi(text), *what, (const int[]){pool_fd, ends[1]}) ? 0 : -1;
    close(ends[1]);
    if (n == 0)
        while ((n = recv(ends[0], ret, sizeof(*ret), 0)) < 0 && errno == EINTR)
            continue;
    close(ends[0]);
    if (n != (ssize_t)sizeof(*ret))
        ret->error = ECONNRESET;
    return true;
}
