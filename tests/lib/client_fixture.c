#include "client_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
