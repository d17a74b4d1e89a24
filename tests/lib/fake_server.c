#include "fake_server.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TLS_HANDSHAKE 22
#define GO_ON "HTTP/1.1 100 Continue\r\n\r\n"

static size_t body_length(const char *head) {
    const char *at = strcasestr(head, "Content-Length:");

    return at ? strtoul(at + 15, NULL, 10) : 0;
}

/* Reads a request; its header stays in last. What begins as TLS does is no request and has no end to wait for. */
static void take_request(struct fake_server *fake, int fd) {
    size_t have = 0;
    size_t body;
    char *end;

    for (;;) {
        ssize_t n = read(fd, fake->last + have, sizeof(fake->last) - 1 - have);

        if (n <= 0 || fake->last[0] == TLS_HANDSHAKE)
            return;
        have += (size_t)n;
        fake->last[have] = '\0';
        end = strstr(fake->last, "\r\n\r\n");
        if (end)
            break;
    }
    if (strcasestr(fake->last, "\r\nExpect: 100-continue\r\n"))
        send(fd, GO_ON, strlen(GO_ON), MSG_NOSIGNAL);
    body = body_length(fake->last);
    have -= (size_t)(end + 4 - fake->last);
    while (have < body) {
        char scratch[65536];
        ssize_t n = read(fd, scratch, sizeof(scratch));

        if (n <= 0)
            return;
        have += (size_t)n;
    }
}

static bool give_answer(const struct fake_server *fake, int fd, const char *text) {
    char control[CMSG_SPACE(sizeof(int) * 16)];
    struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *c;
    unsigned i;

    if (text[0] == '\0')
        return true;
    if (fake->fds > 0) {
        memset(control, 0, sizeof(control));
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fake->fds);
        c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fake->fds);
        for (i = 0; i < fake->fds; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), &fake->send_fd, sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) >= 0;
}

static void *fake_main(void *arg) {
    struct fake_server *fake = arg;
    const char *const *next = fake->answers;
    int held = -1;

    for (;;) {
        int fd = accept(fake->fd, NULL, NULL);
        unsigned n = 0;

        if (fd < 0)
            break;
        do {
            fake->served++;
            take_request(fake, fd);
            if (!give_answer(fake, fd, *next))
                fake->served += 1000;
            if (next[1])
                next++;
        } while (++n < fake->each);
        if (held >= 0)
            close(held);
        held = fd;
        if (!fake->keep) {
            shutdown(fd, SHUT_WR);
            close(fd);
            held = -1;
        }
    }
    if (held >= 0)
        close(held);
    return NULL;
}

void fake_start(struct fake_server *fake, const char *const *answers) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    socklen_t n = sizeof(at);

    fake->answers = answers;
    fake->served = 0;
    fake->last[0] = '\0';
    fake->fd = socket(fake->local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fake->local) {
        snprintf(path.sun_path, sizeof(path.sun_path), "/tmp/gpubuf-fake.%d", (int)getpid());
        snprintf(fake->url, sizeof(fake->url), "unix://%s", path.sun_path);
        unlink(path.sun_path);
        ck_assert_int_eq(bind(fake->fd, (struct sockaddr *)&path, sizeof(path)), 0);
    } else {
        ck_assert_int_eq(bind(fake->fd, (struct sockaddr *)&at, sizeof(at)), 0);
        ck_assert_int_eq(getsockname(fake->fd, (struct sockaddr *)&at, &n), 0);
        snprintf(fake->url, sizeof(fake->url), "http://127.0.0.1:%d", (int)ntohs(at.sin_port));
    }
    ck_assert_int_eq(listen(fake->fd, 16), 0);
    ck_assert_int_eq(pthread_create(&fake->thread, NULL, fake_main, fake), 0);
}

void fake_stop(struct fake_server *fake) {
    shutdown(fake->fd, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->fd);
    if (fake->local)
        unlink(fake->url + strlen("unix://"));
}
