/* Lines about requests, in the log and in the access log. Lines that a client can cause in any number are counted
 * beyond a few a minute, and reported together. */
#include "daemon/request_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/lines.h"
#include "base/thread.h"

/* --- refusals that have a line of their own ----------------------------------------------------------------------- */

void gb_refusal_lines_init(struct gb_refusal_lines *lines) {
    memset(lines, 0, sizeof(*lines));
    gb_mutex_init(&lines->lock);
}

void gb_refusal_lines_done(struct gb_refusal_lines *lines) {
    pthread_mutex_destroy(&lines->lock);
}

static bool is_over(const struct gb_refusal_kind *kind, uint64_t now_ns) {
    return now_ns - kind->since_ns >= GB_REFUSAL_LINES_NS;
}

static void begin(struct gb_refusal_kind *kind, const char *client, enum gb_code code, uint64_t now_ns) {
    *kind = (struct gb_refusal_kind){.code = code, .since_ns = now_ns};
    snprintf(kind->client, sizeof(kind->client), "%s", client);
}

/* If minutes that have not ended take all places, it is one of the others. A minute that has ended and left no line out
 * gives its place. */
static struct gb_refusal_kind *kind_of(struct gb_refusal_lines *lines, const char *client, enum gb_code code,
                                       uint64_t now_ns) {
    struct gb_refusal_kind *place = NULL;
    unsigned i;

    for (i = 0; i < lines->used; i++) {
        struct gb_refusal_kind *kind = &lines->kinds[i];

        if (kind->code == code && strcmp(kind->client, client) == 0)
            return kind;
        if (kind->left_out == 0 && is_over(kind, now_ns))
            place = kind;
    }
    if (!place && lines->used < GB_REFUSAL_LINES_KINDS)
        place = &lines->kinds[lines->used++];
    if (place)
        begin(place, client, code, now_ns);
    return place ? place : &lines->others;
}

bool gb_refusal_lines_take(struct gb_refusal_lines *lines, const char *client, enum gb_code code, uint64_t now_ns) {
    struct gb_refusal_kind *kind;
    bool takes;

    pthread_mutex_lock(&lines->lock);
    kind = kind_of(lines, client, code, now_ns);
    if (kind->left_out == 0 && is_over(kind, now_ns)) {
        kind->since_ns = now_ns;
        kind->count = 0;
    }
    if (now_ns - lines->since_ns >= GB_REFUSAL_LINES_NS) {
        lines->since_ns = now_ns;
        lines->written = 0;
    }
    takes = kind->count++ < GB_REFUSAL_LINES_EACH && lines->written < GB_REFUSAL_LINES_ALL;
    lines->written += takes;
    kind->left_out += !takes;
    pthread_mutex_unlock(&lines->lock);
    return takes;
}

/* Its next minute begins. */
static bool tell(struct gb_refusal_kind *kind, bool all, uint64_t now_ns, struct gb_refusal_kind *ret) {
    if (kind->left_out == 0 || (!all && !is_over(kind, now_ns)))
        return false;
    *ret = *kind;
    kind->since_ns = now_ns;
    kind->count = kind->left_out = 0;
    return true;
}

bool gb_refusal_lines_next(struct gb_refusal_lines *lines, bool all, uint64_t now_ns, struct gb_refusal_kind *ret) {
    bool found = false;
    unsigned i;

    pthread_mutex_lock(&lines->lock);
    for (i = 0; i < lines->used && !found; i++)
        found = tell(&lines->kinds[i], all, now_ns, ret);
    if (!found)
        found = tell(&lines->others, all, now_ns, ret);
    pthread_mutex_unlock(&lines->lock);
    return found;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

#define LOG_NS (60 * GB_NS_PER_S)
#define PATH_MAX_BYTES 1024
#define JOURNAL_AT "journal:"

struct gb_request_log {
    struct gb_log log;       /* whose lines go through `said` */
    struct gb_lines *said;   /* standard error */
    struct gb_lines *access; /* NULL: there is no --access-log */
    const char *name;        /* of that; the options' */
    struct gb_refusal_lines refusals;
    uint64_t lost;   /* as last logged */
    uint64_t log_ns; /* when that was; 0: not yet */
};

/* The server hands its hooks the api as app. Set before the server starts, reset after it has stopped. */
static struct gb_request_log *current;

static size_t write_gap(char *out, size_t size, uint64_t lost) {
    struct gb_json_writer line = gb_json_fixed(out, size);

    gb_json_open(&line, NULL, '{');
    gb_json_put_time(&line, "time", gb_wall_us());
    gb_json_put_u64(&line, "lost", lost);
    gb_json_close(&line, '}');
    gb_json_end(&line);
    return line.used;
}

static bool is_journal(const char *name) {
    return strcmp(name, "journal") == 0 || strncmp(name, JOURNAL_AT, strlen(JOURNAL_AT)) == 0;
}

bool gb_request_log_is_file(const char *name) {
    return name[0] != '\0' && strcmp(name, "-") != 0 && !is_journal(name);
}

static int open_access(const char *name, struct gb_lines **ret, struct gb_error *err) {
    struct gb_lines_to to = {.file = name, .fd = -1, .gap = write_gap};
    struct gb_error why = GB_ERROR_INIT;

    if (name[0] == '\0')
        return 0;
    if (strcmp(name, "-") == 0)
        to = (struct gb_lines_to){.fd = STDOUT_FILENO, .gap = write_gap};
    else if (is_journal(name))
        to = (struct gb_lines_to){.journal = name[strlen("journal")] ? name + strlen(JOURNAL_AT) : GB_LINES_JOURNAL,
                                  .gap = write_gap};
    if (gb_lines_new(&to, ret, &why) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "--access-log %.200s cannot be written: %s; name a file that the daemon may write, \"-\" for "
                        "standard output, or \"journal\" where systemd's runs",
                        name, why.detail);
}

int gb_request_log_open(const struct gb_options *options, const struct gb_log *log, struct gb_request_log **ret,
                        struct gb_error *err) {
    const struct gb_lines_to to = {.fd = log->fd};
    struct gb_request_log *r = calloc(1, sizeof(*r));

    if (!r)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    gb_refusal_lines_init(&r->refusals);
    r->log = *log;
    r->name = options->access_log;
    if (open_access(r->name, &r->access, err) < 0 || gb_lines_new(&to, &r->said, err) < 0) {
        gb_request_log_close(r);
        return -1;
    }
    r->log.lines = r->said;
    current = *ret = r;
    return 0;
}

/* Of refusals whose own lines were left out. */
static void tell_left_out(struct gb_request_log *r, bool all) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_refusal_kind kind;

    while (r->said && gb_refusal_lines_next(&r->refusals, all, now_ns, &kind)) {
        const struct gb_log_field fields[] = {{"client", kind.client[0] ? kind.client : NULL},
                                              {"code", kind.code != GB_OK ? gb_code_slug(kind.code) : NULL}};
        char text[128];

        snprintf(text, sizeof(text), "%llu more in %.0f s%s; the audit and /metrics count each",
                 (unsigned long long)kind.left_out, (double)(now_ns - kind.since_ns) / 1e9,
                 kind.client[0] || kind.code != GB_OK ? "" : ", of many clients");
        gb_log_fields(&r->log, GB_LOG_WARNING, "refused", text, fields, 2);
    }
}

void gb_request_log_close(struct gb_request_log *r) {
    if (!r)
        return;
    current = NULL;
    tell_left_out(r, true);
    gb_refusal_lines_done(&r->refusals);
    gb_lines_free(r->access);
    gb_lines_free(r->said);
    free(r);
}

/* --- a request ---------------------------------------------------------------------------------------------------- */

static const char *or_none(const char *text) {
    return text[0] ? text : NULL;
}

/* Without the query, whose values may be secret. */
static void copy_path(const struct gb_http_request *request, char *ret) {
    size_t n = request->target.s ? strcspn(request->target.s, "?") : 0;

    if (n >= PATH_MAX_BYTES)
        n = PATH_MAX_BYTES - 1;
    if (n > 0)
        memcpy(ret, request->target.s, n);
    ret[n] = '\0';
}

struct shown {
    char client[GB_HTTP_ADDRESS_SIZE];
    char path[PATH_MAX_BYTES];
    const char *method;
    const char *route;
    const char *token;
    const char *certificate;
    const char *code;
};

static void show(const struct gb_http_request *request, const struct gb_http_end *end, struct shown *ret) {
    gb_http_client_text(request, end->peer, ret->client);
    copy_path(request, ret->path);
    ret->method = gb_http_method_name(request->method);
    ret->route = request->route ? request->route->path : NULL;
    ret->token = or_none(request->by.name.s);
    ret->certificate = request->certificate ? gb_http_certificate_text(request->certificate) : NULL;
    ret->code = end->code != GB_OK ? gb_code_slug(end->code) : NULL;
}

static void put_text(struct gb_json_writer *out, const char *key, const char *value) {
    if (value)
        gb_json_put_untrusted(out, key, value, PATH_MAX_BYTES);
    else
        gb_json_put_null(out, key);
}

static size_t write_line(char *at, size_t size, const struct gb_http_request *request, const struct gb_http_end *end,
                         const struct shown *shown) {
    struct gb_json_writer out = gb_json_fixed(at, size);

    gb_json_open(&out, NULL, '{');
    gb_json_put_time(&out, "time", gb_wall_us());
    put_text(&out, "client", shown->client);
    put_text(&out, "token", shown->token);
    put_text(&out, "certificate", shown->certificate);
    put_text(&out, "method", shown->method);
    put_text(&out, "route", shown->route);
    put_text(&out, "path", shown->path);
    gb_json_put_u64(&out, "status", (uint64_t)end->status);
    put_text(&out, "code", shown->code);
    gb_json_put_u64(&out, "received", end->received);
    gb_json_put_u64(&out, "sent", end->sent);
    gb_json_put_u64(&out, "duration_us", end->ns / 1000);
    gb_json_put_u64(&out, "body_us", end->body_ns / 1000);
    gb_json_put_string(&out, "request_id", request->id);
    gb_json_close(&out, '}');
    gb_json_end(&out);
    return out.failed ? 0 : out.used;
}

/* Running out of memory or room, and a deadline, are not faults of the daemon: clients get 503, 507 and so on. */
static enum gb_log_level level_of(int status) {
    return status == 500 ? GB_LOG_ERROR : status == 401 || status == 403 ? GB_LOG_WARNING : GB_LOG_DEBUG;
}

static void log_access(struct gb_request_log *r, const struct gb_http_request *request, const struct gb_http_end *end,
                       const struct shown *shown) {
    enum gb_log_level level = level_of(end->status);
    int priority = gb_log_priority(end->status >= 500 ? GB_LOG_ERROR : level == GB_LOG_DEBUG ? GB_LOG_INFO : level);
    char line[GB_LINE_MAX - 8]; /* room for what the queue puts before it */
    size_t n = write_line(line, sizeof(line), request, end, shown);

    if (n > 0)
        gb_lines_put(r->access, priority, line, n);
}

static void log_event(struct gb_request_log *r, const struct gb_http_request *request, const struct gb_http_end *end,
                      const struct shown *shown) {
    enum gb_log_level level = level_of(end->status);
    const char *event = level == GB_LOG_ERROR ? "failed" : level == GB_LOG_WARNING ? "refused" : "request";
    const struct gb_log_field fields[] = {{"request_id", request->id}, {"client", shown->client},
                                          {"token", shown->token},     {"certificate", shown->certificate},
                                          {"method", shown->method},   {"route", shown->route},
                                          {"path", shown->path},       {"code", shown->code}};
    char text[64];

    snprintf(text, sizeof(text), "%d after %.3f ms", end->status, (double)end->ns / 1e6);
    gb_log_fields(&r->log, level, event, text, fields, sizeof(fields) / sizeof(fields[0]));
}

void gb_request_log_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end) {
    struct gb_request_log *r = current;
    enum gb_log_level level = level_of(end->status);
    bool tells = level <= r->log.level;
    struct shown shown;

    gb_api_ended(app, request, end);
    if (!tells && !r->access)
        return;
    show(request, end, &shown);
    if (r->access)
        log_access(r, request, end, &shown);
    if (tells && (level == GB_LOG_DEBUG || gb_refusal_lines_take(&r->refusals, shown.client, end->code, gb_clock_ns())))
        log_event(r, request, end, &shown);
}

/* --- the owner ---------------------------------------------------------------------------------------------------- */

void gb_request_log_check(struct gb_request_log *r) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_error why;
    uint64_t lost;

    tell_left_out(r, false);
    if (!r->access || (r->log_ns != 0 && now_ns - r->log_ns < LOG_NS))
        return;
    lost = gb_lines_lost(r->access, &why);
    if (lost == r->lost)
        return;
    gb_log(&r->log, GB_LOG_WARNING, "access_log", "%llu lines are not in --access-log %.200s, %llu in all: %s",
           (unsigned long long)(lost - r->lost), r->name, (unsigned long long)lost, why.detail);
    r->lost = lost;
    r->log_ns = now_ns;
}

void gb_request_log_reopen(struct gb_request_log *r) {
    if (r->access)
        gb_lines_reopen(r->access);
}
