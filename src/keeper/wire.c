/* Packets with descriptors. */
#include "keeper/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
};

int gb_keeper_send(int socket, enum gb_keeper_op op, uint64_t id, int fd, int flags) {
    struct gb_keeper_message m = {GB_KEEPER_MAGIC, GB_KEEPER_VERSION, (uint16_t)op, id};
    struct iovec part = {&m, sizeof(m)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t n;

    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.space);
    }
    do
        n = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

static int descriptor_of(struct msghdr *message) {
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return fd;
}

int gb_keeper_receive(int socket, struct gb_keeper_message *ret, int *ret_fd, bool *ret_cut, int flags) {
    struct iovec part = {ret, sizeof(*ret)};
    union control control = {.space = {0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
    ssize_t n;

    *ret_fd = -1;
    *ret_cut = false;
    do
        n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return (int)n;
    *ret_fd = descriptor_of(&message);
    *ret_cut = message.msg_flags & MSG_CTRUNC;
    if (n == (ssize_t)sizeof(*ret) && !(message.msg_flags & MSG_TRUNC) && ret->magic == GB_KEEPER_MAGIC &&
        ret->version == GB_KEEPER_VERSION)
        return 1;
    if (*ret_fd >= 0)
        close(*ret_fd);
    *ret_fd = -1;
    errno = EBADMSG;
    return -1;
}
