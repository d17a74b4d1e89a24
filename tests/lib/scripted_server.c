#include "scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"

static bool send_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static const char *value_in(const char *head, const char *name, size_t *ret_bytes) {
    const char *line = head;
    size_t n = strlen(name);

    while ((line = strstr(line, "\r\n"))) {
        line += 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            line += n + 1;
            line += strspn(line, " ");
            *ret_bytes = strcspn(line, "\r\n");
            return line;
        }
    }
    return NULL;
}

/* Byte by byte, so that nothing behind the head is taken. */
static bool read_head(int fd, char *head, size_t size) {
    size_t have = 0;

    while (have + 1 < size && recv(fd, head + have, 1, 0) == 1) {
        head[++have] = '\0';
        if (have >= 4 && strcmp(head + have - 4, "\r\n\r\n") == 0) {
            head[have - 4] = '\0';
            return true;
        }
    }
    return false;
}

static void read_body(int fd, struct gb_scripted_request *request) {
    size_t n = 0;
    const char *length = value_in(request->head, "Content-Length", &n);
    size_t bytes = length ? strtoull(length, NULL, 10) : 0;
    size_t have = 0;

    if (value_in(request->head, "Expect", &n))
        send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    request->body = calloc(1, bytes + 1);
    ck_assert_ptr_nonnull(request->body);
    while (have < bytes) {
        ssize_t got = recv(fd, request->body + have, bytes - have, 0);

        if (got <= 0)
            break;
        have += (size_t)got;
    }
    request->bytes = have;
}

/* Returns false if the connection ends. */
static bool give(int fd, const struct gb_scripted_answer *answer, bool head_only) {
    size_t bytes = answer->body ? strlen(answer->body) : 0;
    uint64_t length = answer->announce > bytes ? answer->announce : bytes;
    char head[1024];
    int n;

    if (!answer->head)
        return false;
    n = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %llu\r\n\r\n", answer->head,
                 (unsigned long long)length);
    return send_all(fd, head, (size_t)n) && (head_only || bytes == 0 || send_all(fd, answer->body, bytes)) &&
           (head_only || length == bytes);
}

/* One request. Returns false if the connection ends. */
static bool serve(struct gb_scripted *server, int fd) {
    struct gb_scripted_request request = {.body = NULL};
    struct gb_scripted_answer answer = {.head = NULL};

    if (!read_head(fd, request.head, sizeof(request.head)))
        return false;
    read_body(fd, &request);
    pthread_mutex_lock(&server->lock);
    if (server->count < server->length) {
        answer = server->script[server->count];
        server->seen[server->count] = request;
    } else {
        free(request.body);
    }
    server->count++;
    pthread_mutex_unlock(&server->lock);
    return give(fd, &answer, strncmp(request.head, "HEAD ", 5) == 0);
}

static void *run(void *arg) {
    struct gb_scripted *server = arg;

    for (;;) {
        int fd = accept(server->listener, NULL, NULL);

        if (fd < 0)
            return NULL;
        while (serve(server, fd))
            continue;
        close(fd);
    }
}

void gb_scripted_start(struct gb_scripted *server, const struct gb_scripted_answer *script, size_t length) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);

    memset(server, 0, sizeof(*server));
    ck_assert_uint_le(length, GB_SCRIPTED_MAX);
    if (length > 0)
        memcpy(server->script, script, length * sizeof(*script));
    server->length = length;
    pthread_mutex_init(&server->lock, NULL);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(server->listener, 0);
    ck_assert_int_eq(bind(server->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(server->listener, 16), 0);
    ck_assert_int_eq(getsockname(server->listener, (struct sockaddr *)&at, &size), 0);
    server->port = ntohs(at.sin_port);
    snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", server->port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, run, server), 0);
}

/* The client's connection must have ended, or the thread waits for its next request. */
void gb_scripted_stop(struct gb_scripted *server) {
    size_t i;

    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listener);
    for (i = 0; i < server->length; i++)
        free(server->seen[i].body);
    pthread_mutex_destroy(&server->lock);
}

bool gb_scripted_asked(const struct gb_scripted *server, size_t i, const char *start) {
    return i < server->count && strncmp(server->seen[i].head, start, strlen(start)) == 0;
}

const char *gb_scripted_header(const struct gb_scripted *server, size_t i, const char *name) {
    static char value[1024];
    size_t n = 0;
    const char *at = i < server->count ? value_in(server->seen[i].head, name, &n) : NULL;

    if (!at)
        return NULL;
    snprintf(value, sizeof(value), "%.*s", (int)n, at);
    return value;
}
