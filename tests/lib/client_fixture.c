#include "client_fixture.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the daemon --------------------------------------------------------------------------------------------------- */

static const char *program(char path[4096]) {
    const char *named = getenv("GPUBUFD");
    char at[4096];
    ssize_t n;

    if (named)
        return named;
    n = readlink("/proc/self/exe", at, 4000);
    ck_assert_int_gt(n, 0);
    at[n] = '\0';
    do { /* in a bundle gpubufd is beside the test, else above it: BUILD/tests/unit/client/test_client */
        *strrchr(at, '/') = '\0';
        snprintf(path, 4096, "%.4000s/gpubufd", at);
    } while (access(path, X_OK) != 0 && strchr(at, '/') != strrchr(at, '/'));
    return path;
}

static void run_daemon(const struct client_fixture *f, const char *const *extra) {
    const char *argv[32] = {"gpubufd", "--backend", "host", "--listen", "127.0.0.1:0", "--state-dir", f->dir};
    char path[4096];
    char log[80];
    int n = 7;

    for (; extra && *extra; extra++)
        argv[n++] = *extra;
    snprintf(log, sizeof(log), "%s/log", f->dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen(log, "w", stderr) || !freopen(log, "a", stdout))
        _exit(1);
    execv(program(path), (char *const *)(uintptr_t)argv);
    _exit(127);
}

static bool listening(struct client_fixture *f) {
    char path[96];
    char line[96];
    FILE *file;
    bool whole;

    snprintf(path, sizeof(path), "%s/listen", f->dir);
    file = fopen(path, "r");
    if (!file)
        return false;
    whole = fgets(line, sizeof(line), file) && strchr(line, '\n');
    fclose(file);
    if (!whole)
        return false;
    *strchr(line, '\n') = '\0';
    snprintf(f->url, sizeof(f->url), "http://%s", line);
    return true;
}

static void begin(struct client_fixture *f, const char *const *extra) {
    int tries;

    f->pid = fork();
    ck_assert_int_ge(f->pid, 0);
    if (f->pid == 0)
        run_daemon(f, extra);
    for (tries = 0; !listening(f); tries++) {
        ck_assert_msg(waitpid(f->pid, NULL, WNOHANG) == 0, "gpubufd did not start: see %s/log", f->dir);
        ck_assert_int_lt(tries, 6000);
        usleep(5000);
    }
}

void client_fixture_start(struct client_fixture *f, const char *const *extra) {
    struct gpubuf_options options = {.url = f->unix_url};

    memset(f, 0, sizeof(*f));
    strcpy(f->dir, "/tmp/gpubuf-client.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f->dir));
    snprintf(f->unix_url, sizeof(f->unix_url), "unix://%s/gpubufd.sock", f->dir);
    begin(f, extra);
    client_ok(f, gpubuf_open(&options, &f->client, &f->err));
}

void client_fixture_again(struct client_fixture *f, const char *const *extra) {
    char path[96];

    snprintf(path, sizeof(path), "%s/listen", f->dir);
    unlink(path);
    begin(f, extra);
}

void client_fixture_kill(struct client_fixture *f) {
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    f->pid = -1;
}

void client_fixture_stop(struct client_fixture *f) {
    char command[128];
    int status = 0;

    gpubuf_close(f->client);
    if (f->pid > 0) {
        kill(f->pid, SIGTERM);
        ck_assert_int_eq(waitpid(f->pid, &status, 0), f->pid);
    }
    ck_assert_msg(status == 0, "gpubufd ended with %d: see %s/log", status, f->dir);
    snprintf(command, sizeof(command), "rm -rf %s", f->dir);
    ck_assert_int_eq(system(command), 0);
}

/* --- a server that is none ---------------------------------------------------------------------------------------- */

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

gpubuf_client *fake_client(const struct fake_server *fake) {
    struct gpubuf_options options = {
        .url = fake->url, .retries = UINT32_MAX, .connect_timeout_s = 1, .stall_timeout_s = 1, .answer_timeout_s = 1};
    struct gpubuf_error err;
    gpubuf_client *client = NULL;

    ck_assert_int_eq(gpubuf_open(&options, &client, &err), 0);
    return client;
}

unsigned char *client_bytes(size_t n) {
    unsigned char *data = malloc(n);
    size_t i;

    for (i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    return data;
}

void client_expect(struct client_fixture *f, const char *name, const unsigned char *data, size_t n) {
    struct gpubuf_get_params get = {.check = true};
    unsigned char *back = calloc(1, n);
    struct gpubuf_got got;

    client_ok(f, gpubuf_get(f->client, "default", name, gpubuf_to_memory(back, n), &get, &got, &f->err));
    ck_assert_uint_eq(got.bytes, n);
    ck_assert_int_eq(memcmp(data, back, n), 0);
    free(back);
}

int client_ask(gpubuf_client *client, const char *method, const char *target, const char *json,
               struct gpubuf_error *err) {
    static const char *const of_json[] = {"Content-Type: application/json", NULL};

    return gpubuf_request(client, method, target, json ? of_json : NULL, json, json ? strlen(json) : 0, err);
}

bool client_says(const gpubuf_client *client, const char *text) {
    return strstr(gpubuf_answer_of(client)->body, text) != NULL;
}

uint64_t client_number(const gpubuf_client *client, const char *key) {
    const char *body = gpubuf_answer_of(client)->body;
    const char *at;
    char quoted[64];

    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(body, quoted);
    ck_assert_msg(at != NULL, "%s has no %s", body, key);
    return strtoull(at + strlen(quoted), NULL, 10);
}
