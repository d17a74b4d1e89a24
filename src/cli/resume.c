#include "cli/resume.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PAUSE_MS 100 /* before the first retry; each is twice as long as the one before */
#define PAUSE_MAX_MS 5000
#define RETRY_AFTER_MAX_S 60 /* of the daemon's Retry-After */
#define DROP_S 2             /* for an upload that is given up */
#define LOOK_MS 100          /* a pause is left so often to see whether an interrupt came */

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

/* Without bytes: what breaks off is the part that can go on. The key makes it one upload, however often it is sent. */
static int begin(struct resumed *r) {
    struct gpubuf_put_params params = *r->params;
    unsigned char random[16];
    char key[2 * sizeof random + 1];
    size_t i;

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return gb_cli_error(r->cli, GPUBUF_INPUT_FAILED, "there are no random numbers: %s", strerror(errno));
    for (i = 0; i < sizeof random; i++)
        snprintf(key + 2 * i, 3, "%02x", random[i]);
    params.how.idempotency_key = key;
    params.progress = NULL;
    r->at = 0;
    r->id[0] = '\0';
    return gpubuf_upload_begin(r->cli->client, r->name->session, r->name->name, gpubuf_from_memory("", 0),
                               r->source->bytes, &params, r->id, &r->cli->error);
}

static int append(struct resumed *r) {
    uint64_t offset = r->at;

    return gpubuf_upload_append(r->cli->client, r->name->session, r->id, offset, true,
                                gpubuf_from_call(next_bytes, r, r->source->bytes - offset), NULL, &r->cli->error);
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
    double until = gb_cli_now() + (seconds > 0 ? seconds : r->pause_ms / 1e3);

    if (r->left == 0 || !may_pass(err))
        return false;
    while (atomic_load(&r->cli->interrupted) == 0 && gb_cli_now() < until)
        poll(NULL, 0, LOOK_MS);
    r->left--;
    r->pause_ms = r->pause_ms * 2 < PAUSE_MAX_MS ? r->pause_ms * 2 : PAUSE_MAX_MS;
    return atomic_load(&r->cli->interrupted) == 0;
}

/* Asks what the daemon has; begins anew if it has no such upload any more. */
static int find_place(struct resumed *r, bool *ret_complete) {
    int rc;

    *ret_complete = false;
    if (r->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND)
        return begin(r);
    rc = gpubuf_upload_offset(r->cli->client, r->name->session, r->id, &r->at, ret_complete, &r->cli->error);
    return rc < 0 && r->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND ? begin(r) : rc;
}

/* By a client of its own, which no interrupt stops and which has little patience: the upload ends by itself in time. */
static void drop(struct resumed *r) {
    struct gb_cli_options given = r->cli->options;
    struct gpubuf_error why = r->cli->error;
    gpubuf_client *hasty;

    if (r->id[0] == '\0')
        return;
    r->cli->options.timeout = DROP_S;
    r->cli->options.retry = 0;
    if (gb_cli_open(r->cli, NULL, NULL, &hasty) == 0) {
        gpubuf_upload_delete(hasty, r->name->session, r->id, NULL);
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
