/* A server of files for backups: it drops what is uploaded, or gives out the files of a folder. The bytes of an upload
 * are dropped in the kernel, and those of a file are never in this process, so that a client is measured and not its
 * server. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define HEAD_MAX 8192
#define PIECE_BYTES ((size_t)1 << 20)

static const char *folder; /* NULL: there are no files */

/* The value of a header, behind its blanks; NULL where there is none. */
static const char *header_of(const char *head, const char *name) {
    size_t n = strlen(name);
    const char *line = head;

    while ((line = strstr(line, "\r\n")) && (line += 2)[0] != '\r')
        if (!strncasecmp(line, name, n) && line[n] == ':')
            return line + n + 1 + strspn(line + n + 1, " ");
    return NULL;
}

/* Reads a head, with a NUL behind it. Its length, or 0 at the end of the stream. *ret_have: bytes that were read. */
static size_t read_head(int fd, char *head, size_t *ret_have) {
    for (*ret_have = 0; *ret_have < HEAD_MAX;) {
        ssize_t n = recv(fd, head + *ret_have, HEAD_MAX - *ret_have, 0);
        char *end;

        if (n <= 0)
            return 0;
        *ret_have += (size_t)n;
        end = memmem(head, *ret_have, "\r\n\r\n", 4);
        if (end) {
            end[2] = '\0';
            return (size_t)(end - head) + 4;
        }
    }
    return 0;
}

static bool say(int fd, const char *status, uint64_t length) {
    char text[128];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\n\r\n", status, length);

    return bench_send_all(fd, text, (size_t)n);
}

static bool drop(int fd, const char *head, size_t early) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const char *length = header_of(head, "Content-Length");
    uint64_t left = length ? strtoull(length, NULL, 10) : 0;

    if (early > left || (header_of(head, "Expect") && !bench_send_all(fd, go_on, sizeof go_on - 1)))
        return false;
    for (left -= early; left > 0;) {
        ssize_t n = recv(fd, NULL, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, MSG_TRUNC);

        if (n <= 0)
            return false;
        left -= (uint64_t)n;
    }
    return say(fd, "201 Created", 0);
}

static int open_file(const char *head, uint64_t *ret_bytes) {
    const char *target = strchr(head, ' ') + 1;
    char path[HEAD_MAX + 512];
    struct stat st;
    int fd;

    snprintf(path, sizeof path, "%s%.*s", folder, (int)strcspn(target, " ?"), target);
    fd = folder ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *ret_bytes = (uint64_t)st.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool give(int fd, const char *head, bool body) {
    uint64_t left = 0;
    int file = open_file(head, &left);
    bool ok;

    if (file < 0)
        return say(fd, "404 Not Found", 0);
    ok = say(fd, "200 OK", left);
    while (ok && body && left > 0) {
        ssize_t n = sendfile(fd, file, NULL, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES);

        ok = n > 0;
        left -= ok ? (uint64_t)n : 0;
    }
    close(file);
    return ok;
}

static void *serve(void *arg) {
    int fd = (int)(intptr_t)arg;
    char head[HEAD_MAX];
    size_t have, n;
    bool ok = true;

    bench_nodelay(fd);
    while (ok && (n = read_head(fd, head, &have))) {
        if (!strncmp(head, "PUT ", 4))
            ok = drop(fd, head, have - n);
        else if (!strncmp(head, "GET ", 4) || !strncmp(head, "HEAD ", 5))
            ok = have == n && give(fd, head, head[0] == 'G');
        else
            ok = say(fd, "405 Method Not Allowed", 0);
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    static const struct option table[] = {{"dir", 1, NULL, 'd'}, {NULL, 0, NULL, 0}};
    int port = 0;
    int listener;
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c != 'd')
            bench_die("usage: gb-bench-sink [--dir DIR]");
        folder = optarg;
    }
    listener = bench_listen(0, &port);
    printf("PORT %d\n", port);
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;

        if (fd >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0)
            bench_die("no thread");
        if (fd >= 0)
            pthread_detach(thread);
    }
}
