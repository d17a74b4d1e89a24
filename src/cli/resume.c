#include "cli/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/encoding.h"

#define PAUSE_MS 100 /* before the first retry; each is twice as long as the one before */
#define PAUSE_MAX_MS 5000
#define RETRY_AFTER_MAX_S 60 /* of the daemon's Retry-After */
#define DROP_S 2             /* for an upload that is given up */
#define KEY_BYTES 16
#define KEY_SIZE (2 * KEY_BYTES + 1)

struct resumed {
    struct gb_cli *cli;
    const struct gb_cli_source *source;
    const struct gb_cli_name *name;
    const struct gpubuf_put_params *params;
    struct gb_cli_progress *progress;
    char id[GPUBUF_ID_SIZE]; /* of the upload; "": there is none */
    uint64_t at;             /* the next byte that is read */
    uint64_t left;           /* retries */
    unsigned pause_ms;
};

bool gb_cli_resumes(const struct gb_cli *cli, const struct gb_cli_source *source) {
    const struct gb_cli_options *o = &cli->options;

    return o->retry > 0 && !source->pipe && source->bytes != GPUBUF_UNKNOWN && o->connections <= 1 && !o->in_place &&
           !o->given[GB_CLI_ID_offset] && o->slice == NULL && o->side == NULL;
}

static int64_t next_bytes(void *arg, void *data, size_t size) {
    struct resumed *r = arg;
    ssize_t n;

    do
        n = pread(r->source->fd, data, size, (off_t)(r->source->front_at + r->at));
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        r->at += (uint64_t)n;
        gb_cli_progress_move(r->progress, r->at, r->source->bytes);
    }
    return n;
}

/* Adds a query parameter behind a path; value NULL: none. -1 with cli->error: it is too long. */
static int add_query(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    int n;

    if (value == NULL)
        return 0;
    n = snprintf(target + at, GB_CLI_PATH - at, "%c%s=", strchr(target, '?') != NULL ? '&' : '?', key);
    if (n < 0 || (size_t)n >= GB_CLI_PATH - at ||
        gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - (size_t)n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the options are too long for a request");
    return 0;
}

static int begin_target(struct resumed *r, char *ret) {
    const struct gpubuf_put_params *p = r->params;
    char max_bytes[24];
    const struct {
        const char *key;
        const char *value;
    } queries[] = {
        {"format", p->format},
        {"dtype", p->dtype},
        {"shape", p->shape},
        {"stream", p->stream},
        {"kind", p->kind},
        {"pool", p->pool},
        {"device", p->device},
        {"durability", p->durability},
        {"spill", p->spill},
        {"mirrored", p->mirrored ? "true" : NULL},
        {"max_bytes", p->max_bytes.set ? max_bytes : NULL},
    };
    int rc = gb_cli_target(r->cli, ret, "/v1/sessions/{}/buffers/{}/data", r->name->session, r->name->name);
    size_t i;

    snprintf(max_bytes, sizeof max_bytes, "%" PRIu64, p->max_bytes.value);
    for (i = 0; i < sizeof queries / sizeof queries[0] && rc == 0; i++)
        rc = add_query(r->cli, ret, queries[i].key, queries[i].value);
    return rc;
}

/* A new key in text[KEY_SIZE]. -1 with cli->error. */
static int make_key(struct gb_cli *cli, char *text) {
    unsigned char random[KEY_BYTES];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return gb_cli_error(cli, GPUBUF_INPUT_FAILED, "there are no random numbers: %s", strerror(errno));
    gb_hex(random, sizeof random, text);
    return 0;
}

/* Without bytes: what breaks off is the part that can go on. The key makes it one upload, however often it is sent. */
static int begin(struct resumed *r) {
    char idempotency[sizeof "Idempotency-Key: " + KEY_SIZE] = "Idempotency-Key: ";
    char length[48];
    const char *const headers[] = {"Upload-Complete: ?0", length, idempotency, NULL};
    const struct gpubuf_answer *answer = gpubuf_answer_of(r->cli->client);
    char target[GB_CLI_PATH];
    json_t *upload;

    r->at = 0;
    r->id[0] = '\0';
    if (begin_target(r, target) < 0 || make_key(r->cli, idempotency + strlen(idempotency)) < 0)
        return -1;
    snprintf(length, sizeof length, "Upload-Length: %" PRIu64, r->source->bytes);
    if (gpubuf_request(r->cli->client, "POST", target, headers, "", 0, &r->cli->error) < 0)
        return -1;
    upload = json_loadb(answer->body, answer->bytes, 0, NULL);
    snprintf(r->id, sizeof r->id, "%s", gb_cli_text(upload, "id"));
    json_decref(upload);
    return r->id[0] != '\0' ? 0 : gb_cli_error(r->cli, GPUBUF_BAD_ANSWER, "the answer names no upload");
}

static int upload_target(const struct resumed *r, char *ret) {
    return gb_cli_target(r->cli, ret, "/v1/sessions/{}/uploads/{}", r->name->session, r->id);
}

static int append(struct resumed *r) {
    char offset[48];
    const char *const headers[] = {offset, "Upload-Complete: ?1", "Content-Type: application/partial-upload", NULL};
    struct gpubuf_source rest = gpubuf_from_call(next_bytes, r, r->source->bytes - r->at);
    char target[GB_CLI_PATH];

    snprintf(offset, sizeof offset, "Upload-Offset: %" PRIu64, r->at);
    if (upload_target(r, target) < 0)
        return -1;
    return gpubuf_request_from(r->cli->client, "PATCH", target, headers, rest, &r->cli->error);
}

static bool may_pass(const struct gpubuf_error *err) {
    switch (err->code) {
    case GPUBUF_CANNOT_CONNECT:
    case GPUBUF_CONNECTION_LOST:
    case GPUBUF_CLIENT_TIMEOUT:
    case GPUBUF_UPLOAD_BUSY:
    case GPUBUF_UPLOAD_OFFSET_MISMATCH:
    case GPUBUF_UPLOAD_NOT_FOUND: /* the daemon was restarted */
        return true;
    default:
        return err->retryable;
    }
}

/* Waits, if the error may pass and retries are left. False: it stands. */
static bool again(struct resumed *r) {
    const struct gpubuf_error *err = &r->cli->error;
    int seconds = err->retry_after_s < RETRY_AFTER_MAX_S ? err->retry_after_s : RETRY_AFTER_MAX_S;
    double pause_s = seconds > 0 ? seconds : r->pause_ms / 1e3;

    if (r->left == 0 || !may_pass(err))
        return false;
    r->left--;
    r->pause_ms = r->pause_ms * 2 < PAUSE_MAX_MS ? r->pause_ms * 2 : PAUSE_MAX_MS;
    return gb_cli_pause(r->cli, pause_s);
}

/* Asks what the daemon has; begins anew if it has no such upload any more. */
static int find_place(struct resumed *r, bool *ret_complete) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(r->cli->client);
    char target[GB_CLI_PATH];

    *ret_complete = false;
    if (r->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND)
        return begin(r);
    if (upload_target(r, target) < 0)
        return -1;
    if (gpubuf_request(r->cli->client, "GET", target, NULL, NULL, 0, &r->cli->error) < 0)
        return r->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND ? begin(r) : -1;
    if (!answer->upload_offset.set)
        return gb_cli_error(r->cli, GPUBUF_BAD_ANSWER, "the answer has no Upload-Offset");
    r->at = answer->upload_offset.value;
    *ret_complete = answer->upload_complete;
    return 0;
}

/* By a client of its own, which no interrupt stops and which has little patience: the upload ends by itself in time. */
static void drop(struct resumed *r) {
    struct gb_cli_options given = r->cli->options;
    struct gpubuf_error why = r->cli->error;
    char target[GB_CLI_PATH];
    gpubuf_client *hasty;

    if (r->id[0] == '\0' || upload_target(r, target) < 0)
        return;
    r->cli->options.timeout = DROP_S;
    r->cli->options.retry = 0;
    if (gb_cli_open(r->cli, NULL, NULL, &hasty) == 0) {
        gpubuf_request(hasty, "DELETE", target, NULL, NULL, 0, NULL);
        gpubuf_close(hasty);
    }
    r->cli->options = given;
    r->cli->error = why;
}

json_t *gb_cli_put_resumable(struct gb_cli *cli, const struct gb_cli_source *source, const struct gb_cli_name *name,
                             const struct gpubuf_put_params *params, struct gb_cli_progress *progress) {
    struct resumed r = {cli, source, name, params, progress, "", 0, cli->options.retry, PAUSE_MS};
    const struct gpubuf_answer *answer;
    char target[GB_CLI_PATH];
    bool complete = false;
    int rc = begin(&r);

    while (rc == 0 && !complete) {
        rc = append(&r);
        if (rc == 0) {
            answer = gpubuf_answer_of(cli->client);
            return json_loadb(answer->body, answer->bytes, 0, NULL);
        }
        while (rc < 0 && again(&r))
            rc = find_place(&r, &complete);
    }
    if (complete) { /* the answer was lost */
        if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}", name->session, name->name) < 0)
            return NULL;
        return gb_cli_request(cli, "GET", target, NULL);
    }
    drop(&r);
    return NULL;
}
