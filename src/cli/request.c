/* Requests and their answers, as JSON: of one buffer, of all that match a pattern, and any that the user writes
 * (call). What the options say of a thing becomes members of a request here (gb_cli_settings), by options.def.
 * Commands call it for all that is not bytes; it sets cli->error and prints nothing of it. */
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/cli.h"

#define SAME_MS 0.001 /* the header gives three digits */
#define NO_ITEMS "the answer has no items; is this a gpubufd?"
#define NO_JSON "the arguments cannot be written as JSON: they must be UTF-8"
#define PAGE "1000" /* items of a list that are asked for at a time */
#define BODY_BYTES (64u << 20)
#define PRETTY (JSON_ENCODE_ANY | JSON_INDENT(2) | JSON_REAL_PRECISION(15))

int gb_cli_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret) {
    const char *slash = strchr(text, '/');
    const char *name = slash ? slash + 1 : text;
    const char *session = slash ? text : cli->session;
    size_t n = slash ? (size_t)(slash - text) : strlen(session);

    if (n == 0 || n >= GPUBUF_NAME_SIZE || name[0] == '\0' || strlen(name) >= GPUBUF_NAME_SIZE || strchr(name, '/'))
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "\"%s\" is no buffer: [SESSION/]NAME, each of at most %d characters", text,
                            GPUBUF_NAME_SIZE - 1);
    snprintf(ret->session, sizeof(ret->session), "%.*s", (int)n, session);
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    return 0;
}

bool gb_cli_is_name(const char *text) {
    size_t n = strspn(text, GB_CLI_NAME_LETTERS);

    return n > 0 && text[n] == '\0' && n < GPUBUF_NAME_SIZE && !strchr("._-", text[0]);
}

int gb_cli_one_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret) {
    const char *command = cli->command->name;

    if (strcmp(command, "get") == 0 && strpbrk(text, "*?[,"))
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "\"%s\" is several buffers, which go into one FILE that ends in .safetensors: as a "
                            "beginning of names with * behind it, or as names with commas between them",
                            text);
    if (gb_cli_is_pattern(text))
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "%s takes no pattern: name one buffer (\"gpubuf ls '%s'\" lists those that match)", command,
                            text);
    return gb_cli_name(cli, text, ret);
}

json_t *gb_cli_request_with(struct gb_cli *cli, const char *method, const char *target, const char *header,
                            json_t *body) {
    const char *headers[3] = {NULL, NULL, NULL};
    const struct gpubuf_answer *answer;
    char *text = NULL;
    json_error_t why;
    json_t *value;
    int n = 0;
    int r;

    if (header)
        headers[n++] = header;
    if (body) {
        headers[n++] = "Content-Type: application/json";
        text = json_dumps(body, JSON_COMPACT);
        json_decref(body);
    }
    if (body && !text) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, NO_JSON);
        return NULL;
    }
    do
        r = gpubuf_request(cli->client, method, target, headers, text, text ? strlen(text) : 0, &cli->error);
    while (r < 0 && gb_cli_again(cli));
    free(text);
    if (r < 0)
        return NULL;
    answer = gpubuf_answer_of(cli->client);
    if (answer->bytes == 0)
        return json_object();
    value = json_loadb(answer->body, answer->bytes, 0, &why);
    if (!value && json_error_code(&why) == json_error_numeric_overflow)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER,
                     "%s %s was answered with a number beyond 2^63 - 1 (%s); a newer gpubufd sends none", method,
                     target, why.text);
    else if (!value)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, "%s %s was not answered with JSON; is this a gpubufd?", method, target);
    return value;
}

json_t *gb_cli_request(struct gb_cli *cli, const char *method, const char *target, json_t *body) {
    return gb_cli_request_with(cli, method, target, NULL, body);
}

json_t *gb_cli_post(struct gb_cli *cli, const char *target, json_t *body) {
    if (gb_cli_settings(cli, body) == 0)
        return gb_cli_request(cli, "POST", target, body);
    json_decref(body);
    return NULL;
}

json_t *gb_cli_sync(struct gb_cli *cli, const char *target) {
    const int most = 30; /* of one request; the daemon may cut it */
    double end = cli->options.timeout > 0 ? gb_cli_now() + cli->options.timeout : 0;
    json_t *answer = NULL;

    do {
        double left = end > 0 ? end - gb_cli_now() : most;
        char prefer[32];

        snprintf(prefer, sizeof(prefer), "Prefer: wait=%d", left > most ? most : left < 1 ? 1 : (int)left);
        answer = gb_cli_request_with(cli, "POST", target, prefer, json_object());
    } while (!answer && cli->error.code == GPUBUF_TIMED_OUT && (end == 0 || gb_cli_now() < end));
    return answer;
}

json_t *gb_cli_result(struct gb_cli *cli, const char *id) {
    const struct gpubuf_answer *told;
    json_t *operation;
    json_t *result;

    if (gpubuf_operation_wait(cli->client, id, (uint32_t)(cli->options.timeout + 0.999), &cli->error) < 0)
        return NULL;
    told = gpubuf_answer_of(cli->client);
    operation = json_loadb(told->body, told->bytes, 0, NULL);
    result = json_incref(json_object_get(operation, "result"));
    json_decref(operation);
    return result;
}

json_t *gb_cli_request_long(struct gb_cli *cli, const char *target, json_t *body) {
    json_t *answer = NULL;
    json_t *result;

    if (gb_cli_settings(cli, body) == 0)
        answer = gb_cli_request_with(cli, "POST", target, "Prefer: respond-async", body);
    else
        json_decref(body);
    if (!answer || gpubuf_answer_of(cli->client)->status != 202)
        return answer;
    result = gb_cli_result(cli, gb_cli_text(answer, "id"));
    json_decref(answer);
    return result;
}

/* Moves the items of one page; *ret_cursor is that of the next, or "". */
static int add_page(struct gb_cli *cli, json_t *items, json_t *page, char *ret_cursor) {
    json_t *found = json_object_get(page, "items");

    if (!json_is_array(found) || json_array_extend(items, found) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ANSWER, NO_ITEMS);
    snprintf(ret_cursor, GB_CLI_PATH, "%s", gb_cli_text(page, "next_cursor"));
    return 0;
}

json_t *gb_cli_list(struct gb_cli *cli, const char *target) {
    json_t *items = json_array();
    char cursor[GB_CLI_PATH] = "";
    char paged[GB_CLI_PATH];
    int r = items ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");

    while (r == 0) {
        char format[GB_CLI_PATH];
        json_t *page;

        snprintf(format, sizeof(format), "%.2048s%climit=" PAGE "%s", target, strchr(target, '?') ? '&' : '?',
                 cursor[0] != '\0' ? "&cursor={}" : "");
        r = gb_cli_target(cli, paged, format, cursor);
        page = r == 0 ? gb_cli_request(cli, "GET", paged, NULL) : NULL;
        if (!page)
            r = -1;
        else
            r = add_page(cli, items, page, cursor);
        json_decref(page);
        if (r == 0 && cursor[0] == '\0')
            return items;
    }
    json_decref(items);
    return NULL;
}

json_t *gb_cli_items(struct gb_cli *cli, const char *target) {
    json_t *page = gb_cli_request(cli, "GET", target, NULL);
    json_t *items = json_incref(json_object_get(page, "items"));

    if (page && !items)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, NO_ITEMS);
    json_decref(page);
    return items;
}

int gb_cli_show(struct gb_cli *cli, json_t *value, const struct gb_cli_column *columns, size_t count) {
    if (!value)
        return gb_cli_failed(cli);
    if (cli->options.json && cli->several)
        json_array_append(cli->several, value);
    else if (cli->options.json)
        gb_cli_json(stdout, value);
    else if (columns)
        gb_cli_table(stdout, columns, count, value);
    else
        gb_cli_details(stdout, value);
    json_decref(value);
    return GB_CLI_DONE;
}

bool gb_cli_draws(const struct gb_cli *cli) {
    return !cli->options.quiet && !cli->host && isatty(STDERR_FILENO);
}

/* --- buffers by a shell's patterns: "[SESSION/]NAME", in which both parts may have wildcards ---------------------- */

bool gb_cli_is_pattern(const char *text) {
    return strpbrk(text, "*?[") != NULL; /* which no name has */
}

/* Whether the part before the slash is one. */
static bool is_of_sessions(const char *text) {
    const char *slash = strchr(text, '/');
    const char *wild = strpbrk(text, "*?[");

    return slash && wild && wild < slash;
}

static bool matches(json_t *item, const char *pattern) {
    return fnmatch(pattern, gb_cli_text(item, "name"), 0) == 0;
}

/* The list of those that may match: the daemon knows of prefixes alone. What has characters that no name has is
 * compared here. */
static int target_of(struct gb_cli *cli, const char *session, const char *pattern, const char *query, char *ret) {
    size_t n = strspn(pattern, GB_CLI_NAME_LETTERS);
    char prefix[GPUBUF_NAME_SIZE];
    int r;

    if (n == 0 || n >= sizeof(prefix) || strchr("._-", pattern[0])) {
        r = gb_cli_target(cli, ret, "/v1/sessions/{}/buffers", session);
        query += query[0] == '&';
        if (r == 0 && query[0] != '\0')
            strcat(ret, "?");
    } else {
        snprintf(prefix, sizeof(prefix), "%.*s", (int)n, pattern);
        r = gb_cli_target(cli, ret, "/v1/sessions/{}/buffers?prefix={}", session, prefix);
    }
    if (r == 0)
        strcat(ret, query); /* three names and GB_CLI_QUERY are less than GB_CLI_PATH */
    return r;
}

/* Adds what matches in one session. -1 with cli->error set. */
static int add_session(struct gb_cli *cli, json_t *found, const char *session, const char *pattern, const char *query) {
    char target[GB_CLI_PATH];
    json_t *items = NULL;
    json_t *item;
    size_t i;

    if (target_of(cli, session, pattern, query, target) == 0)
        items = gb_cli_list(cli, target);
    if (!items)
        return -1;
    json_array_foreach(items, i, item) {
        if (matches(item, pattern))
            json_array_append(found, item);
    }
    json_decref(items);
    return 0;
}

/* A session that goes meanwhile has no buffers. */
static int add_sessions(struct gb_cli *cli, json_t *found, const char *sessions, const char *pattern,
                        const char *query) {
    json_t *items = gb_cli_list(cli, "/v1/sessions");
    json_t *item;
    int r = items ? 0 : -1;
    size_t i;

    json_array_foreach(items, i, item) {
        if (r < 0 || !matches(item, sessions))
            continue;
        r = add_session(cli, found, gb_cli_text(item, "name"), pattern, query);
        if (r < 0 && cli->error.code == GPUBUF_SESSION_NOT_FOUND)
            r = 0;
    }
    json_decref(items);
    return r;
}

json_t *gb_cli_matching(struct gb_cli *cli, const char *pattern, const char *query) {
    const char *slash = strchr(pattern, '/');
    json_t *found = json_array();
    char text[2 * GPUBUF_NAME_SIZE];
    struct gb_cli_name name;
    int r;

    /* "SESSION/": all of it */
    snprintf(text, sizeof(text), "%s%s", pattern, slash && slash[1] == '\0' ? "*" : "");
    r = gb_cli_name(cli, text, &name);
    if (r == 0)
        r = is_of_sessions(text) ? add_sessions(cli, found, name.session, name.name, query)
                                 : add_session(cli, found, name.session, name.name, query);
    if (r == 0)
        return found;
    json_decref(found);
    return NULL;
}

int gb_cli_none_matches(struct gb_cli *cli, const char *pattern) {
    struct gb_cli_name name;

    if (gb_cli_name(cli, pattern, &name) < 0)
        return gb_cli_failed(cli);
    if (is_of_sessions(pattern))
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND, "no buffer of any session matches %s", pattern);
    else
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND,
                     gb_cli_is_pattern(name.name) ? "no buffer of session \"%s\" matches %s"
                                                  : "session \"%s\" has no buffer named \"%s\"",
                     name.session, name.name);
    cli->error.status = 404;
    return gb_cli_failed(cli);
}

/* --- several ------------------------------------------------------------------------------------------------------ */

/* A pattern that matches none is an error, as it is of rm(1). */
static int each_matching(struct gb_cli *cli, const char *pattern, gb_cli_buffer_fn *one, void *arg) {
    char full[2 * GPUBUF_NAME_SIZE];
    int worst = GB_CLI_DONE;
    json_t *items = gb_cli_matching(cli, pattern, "");
    json_t *item;
    size_t i;

    if (!items)
        return gb_cli_failed(cli);
    if (json_array_size(items) == 0) {
        json_decref(items);
        return gb_cli_none_matches(cli, pattern);
    }
    json_array_foreach(items, i, item) {
        int status;

        if (atomic_load(&cli->interrupted))
            break;
        snprintf(full, sizeof(full), "%s/%s", gb_cli_text(item, "session"), gb_cli_text(item, "name"));
        cli->about = gb_cli_text(item, "name");
        status = one(cli, strchr(pattern, '/') ? full : cli->about, arg);
        cli->about = NULL; /* it ends with the item */
        worst = worst == GB_CLI_DONE ? status : worst;
    }
    json_decref(items);
    return worst;
}

int gb_cli_each_buffer(struct gb_cli *cli, int argc, char **argv, gb_cli_buffer_fn *one, void *arg) {
    int worst = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && !atomic_load(&cli->interrupted); i++) {
        bool pattern = gb_cli_is_pattern(argv[i]);
        int status;

        cli->about = pattern ? NULL : argv[i];
        status = pattern ? each_matching(cli, argv[i], one, arg) : one(cli, argv[i], arg);
        worst = worst == GB_CLI_DONE ? status : worst;
    }
    cli->about = NULL;
    return worst == GB_CLI_DONE && atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : worst;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static bool says_yes(void) {
    char line[16];

    return fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y');
}

/* Of one pattern. */
static int confirm(struct gb_cli *cli, const char *pattern, const char *what) {
    json_t *items = gb_cli_matching(cli, pattern, "");
    unsigned long long count = json_array_size(items);

    if (!items)
        return gb_cli_failed(cli);
    json_decref(items);
    if (count == 0) /* which is said when it is done */
        return GB_CLI_DONE;
    if (!isatty(STDIN_FILENO))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "%s matches %llu buffers, in all sessions that match: add --yes to %s them", pattern,
                              count, what);
    fprintf(stderr, "gpubuf: %s %llu buffers that match %s? [y/N] ", what, count, pattern);
    if (says_yes())
        return GB_CLI_DONE;
    return gb_cli_refused(cli, GB_CLI_FAILED, "nothing was done");
}

int gb_cli_confirm(struct gb_cli *cli, int argc, char **argv, const char *what) {
    int r = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && r == GB_CLI_DONE && !cli->options.yes; i++)
        if (is_of_sessions(argv[i]))
            r = confirm(cli, argv[i], what);
    return r;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

json_t *gb_cli_device(const char *device) {
    if (device[strspn(device, "0123456789")] == '\0')
        return json_integer(strtol(device, NULL, 10));
    return json_string(device);
}

static void set_limit(json_t *body, const char *key, bool given, uint64_t value) {
    if (given)
        json_object_set_new(body, key, value == GB_CLI_NONE ? json_null() : json_integer((json_int_t)value));
}

/* The value of a setting in JSON. NULL: it is not UTF-8. */
static json_t *value_of(enum gb_cli_option_type type, const void *value) {
    uint64_t number;

    switch (type) {
    case GB_CLI_FLAG:
        return json_true();
    case GB_CLI_DEVICE:
        return gb_cli_device(*(const char *const *)value);
    case GB_CLI_SIZE:
    case GB_CLI_COUNT:
    case GB_CLI_LIMIT:
        number = *(const uint64_t *)value;
        return type == GB_CLI_LIMIT && number == GB_CLI_NONE ? json_null() : json_integer((json_int_t)number);
    default:
        return json_string(*(const char *const *)value);
    }
}

int gb_cli_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_option_spec *spec;
    json_t *value;
    int i;

    if (!body)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, NO_JSON);
    for (i = 0; i < GB_CLI_IDS; i++) {
        spec = &gb_cli_options_all[i];
        if (!spec->setting || !cli->options.given[i])
            continue;
        value = value_of(spec->type, (const char *)&cli->options + spec->at);
        if (!value)
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is not UTF-8", spec->name);
        json_object_set_new(body, spec->setting, value);
    }
    return 0;
}

/* "K=V,K=V"; a key without = takes the label away. */
int gb_cli_label_settings(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.labels;
    json_t *labels;

    if (!at)
        return 0;
    labels = json_object();
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        const char *sign = memchr(at, '=', n);
        size_t key = sign ? (size_t)(sign - at) : n;
        json_t *value = key == 0 ? NULL : !sign ? json_null() : json_stringn(sign + 1, n - key - 1);

        if (!value || json_object_setn_new(labels, at, key, value) < 0) {
            json_decref(labels);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--labels is KEY=VALUE,... in UTF-8; a KEY alone removes");
        }
        at += n + (at[n] == ',');
    }
    return json_object_set_new(body, "labels", labels);
}

int gb_cli_session_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;
    json_t *quota = json_object();

    set_limit(quota, "bytes", o->given[GB_CLI_ID_max_bytes], o->max_bytes);
    set_limit(quota, "buffers", o->given[GB_CLI_ID_max_buffers], o->max_buffers);
    set_limit(quota, "pinned_bytes", o->given[GB_CLI_ID_max_pinned], o->max_pinned);
    set_limit(quota, "stored_bytes", o->given[GB_CLI_ID_max_stored], o->max_stored);
    if (json_object_size(quota) > 0)
        json_object_set(body, "quota", quota);
    json_decref(quota);
    return gb_cli_settings(cli, body) < 0 ? -1 : gb_cli_label_settings(cli, body);
}

/* The policies that are named are on, the others off. */
static int set_reuse(struct gb_cli *cli, json_t *body) {
    static const struct {
        const char *word;
        const char *key;
    } policies[] = {{"event", "follow_event_dependencies"},
                    {"opportunistic", "allow_opportunistic"},
                    {"internal", "allow_internal_dependencies"}};
    const char *text = cli->options.reuse;
    const char *at = text;
    bool on[3] = {false};
    json_t *reuse;
    size_t i;

    if (!text)
        return 0;
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        bool all = n == 3 && strncmp(at, "all", n) == 0;
        bool known = all || (n == 4 && strncmp(at, "none", n) == 0);

        for (i = 0; i < 3; i++) {
            bool named = strlen(policies[i].word) == n && strncmp(at, policies[i].word, n) == 0;

            on[i] |= all || named;
            known |= named;
        }
        if (!known)
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                                "--reuse \"%s\": it is all, none, or of event, opportunistic and internal", text);
        at += n + (at[n] == ',');
    }
    reuse = json_object();
    for (i = 0; i < 3; i++)
        json_object_set_new(reuse, policies[i].key, json_boolean(on[i]));
    return json_object_set_new(body, "reuse", reuse);
}

int gb_cli_pool_settings(struct gb_cli *cli, json_t *body) {
    set_limit(body, "max_bytes", cli->options.given[GB_CLI_ID_max_bytes], cli->options.max_bytes);
    return gb_cli_settings(cli, body) < 0 ? -1 : set_reuse(cli, body);
}

/* "3,4" */
static int set_shape(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.shape;
    json_t *shape;

    if (!at)
        return 0;
    shape = json_array();
    for (;;) {
        char *end;
        long long n = strtoll(at, &end, 10);

        if (end == at || *at < '0' || *at > '9' || (*end != '\0' && *end != ',')) {
            json_decref(shape);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--shape \"%s\" is not N,N...", cli->options.shape);
        }
        json_array_append_new(shape, json_integer(n));
        if (*end == '\0')
            break;
        at = end + 1;
    }
    return json_object_set_new(body, "shape", shape);
}

static int set_resident(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;

    if (o->resident && o->no_resident)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "--resident and --no-resident exclude each other: give one of them");
    if (o->resident || o->no_resident)
        json_object_set_new(body, "resident", json_boolean(o->resident));
    return 0;
}

int gb_cli_buffer_settings(struct gb_cli *cli, json_t *body) {
    if (gb_cli_settings(cli, body) < 0 || set_resident(cli, body) < 0 || set_shape(cli, body) < 0)
        return -1;
    return gb_cli_label_settings(cli, body);
}

/* --- times of a transfer ------------------------------------------------------------------------------------------ */

static void put_times(double queue_ms, double copy_ms) {
    if (queue_ms >= 0 && copy_ms >= 0)
        fprintf(stderr, GB_CLI_TRACE "waited %.3f ms, copied %.3f ms\n", queue_ms, copy_ms);
    else if (queue_ms >= 0)
        fprintf(stderr, GB_CLI_TRACE "waited %.3f ms\n", queue_ms);
}

void gb_cli_times_put(const struct gb_cli *cli) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(cli->client);

    if (cli->options.verbose)
        put_times(answer->queue_ms, answer->copy_ms);
}

/* How long the last large transfer of the buffer copied, if that was this download: it has the same bytes, unless
 * another client's came in between. Negative: it is not known. */
static double copied_ms(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes, double queue_ms) {
    char target[GB_CLI_PATH];
    json_t *buffer = NULL;
    double copy_ms = -1;
    json_t *last;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}?last_transfer=true", name->session, name->name) == 0)
        buffer = gb_cli_request(cli, "GET", target, NULL);
    last = json_object_get(buffer, "last_transfer");
    if (json_is_object(last) && strcmp(gb_cli_text(last, "direction"), "upload") != 0 &&
        gb_cli_number(last, "bytes") <= (double)bytes && fabs(gb_cli_number(last, "queue_ms") - queue_ms) <= SAME_MS)
        copy_ms = gb_cli_number(last, "copy_ms");
    json_decref(buffer);
    return copy_ms;
}

void gb_cli_times_get(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(cli->client);
    double queue_ms = answer->queue_ms;
    double copy_ms = answer->copy_ms;

    if (!cli->options.verbose || cli->options.connections > 1)
        return;
    put_times(queue_ms, copy_ms >= 0 ? copy_ms : copied_ms(cli, name, bytes, queue_ms));
}

/* --- call: any request, for what has no command of its own -------------------------------------------------------- */

static char *read_all(FILE *file, size_t *ret_bytes) {
    char *text = malloc(BODY_BYTES + 1);

    if (!text)
        return NULL;
    *ret_bytes = fread(text, 1, BODY_BYTES + 1, file);
    if (ferror(file) || *ret_bytes > BODY_BYTES) {
        errno = ferror(file) ? errno : EFBIG;
        free(text);
        return NULL;
    }
    text[*ret_bytes] = '\0';
    return text;
}

char *gb_cli_read_file(const struct gb_cli *cli, const char *given, size_t *ret_bytes) {
    char *path = gb_cli_host_path(cli, given);
    FILE *file = path ? fopen(path, "re") : NULL;
    char *text = file ? read_all(file, ret_bytes) : NULL;
    int error = errno;

    if (file)
        fclose(file);
    free(path);
    errno = error;
    return text;
}

#define CONTENT_TYPE "content-type:"

/* --header says what the body is; without it, and where it says so, it is JSON. */
static bool names_type(const struct gb_cli *cli) {
    const char *header = cli->options.header;

    return header && strncasecmp(header, CONTENT_TYPE, strlen(CONTENT_TYPE)) == 0;
}

static int check_json(struct gb_cli *cli, const char *body, size_t bytes) {
    json_error_t why;
    json_t *value;

    if (names_type(cli) && !strstr(cli->options.header, "json"))
        return 0;
    value = json_loadb(body, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    if (!value)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "the body is not JSON: %s, at byte %d; bytes of another type go with "
                              "--header \"Content-Type: application/octet-stream\"",
                              why.text, why.position);
    json_decref(value);
    return 0;
}

/* The body: the argument itself, "-" for standard input or "@FILE". */
static int read_body(struct gb_cli *cli, const char *given, char **ret, size_t *ret_bytes) {
    if (cli->host && strcmp(given, "-") == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "standard input cannot go to several hosts; name a file: @FILE");
    if (strcmp(given, "-") == 0)
        *ret = read_all(stdin, ret_bytes);
    else if (given[0] == '@')
        *ret = gb_cli_read_file(cli, given + 1, ret_bytes);
    else if ((*ret = strdup(given)))
        *ret_bytes = strlen(given);
    if (!*ret)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the body \"%s\" cannot be read: %s", given, strerror(errno));
    return check_json(cli, *ret, *ret_bytes);
}

/* A terminal obeys control characters; JSON has them escaped, and text keeps its lines. */
static void put_terminal(const struct gpubuf_answer *answer) {
    json_t *value = json_loadb(answer->body, answer->bytes, JSON_DECODE_ANY, NULL);
    char *text = value ? json_dumps(value, PRETTY) : NULL;
    const char *at = text ? text : answer->body;

    while (*at != '\0') {
        char line[4096];
        size_t n = strcspn(at, "\n");
        size_t shown = n < sizeof(line) ? n : sizeof(line) - 1;

        snprintf(line, sizeof(line), "%.*s", (int)shown, at);
        gb_cli_put(stdout, line);
        at += shown;
        if (shown == n)
            putchar('\n');
        at += shown == n && *at == '\n';
    }
    free(text);
    json_decref(value);
}

static int put_answer(struct gb_cli *cli, const struct gpubuf_answer *answer) {
    bool text = strncmp(answer->content_type, "text/", 5) == 0 || strstr(answer->content_type, "json");

    if (answer->bytes == 0)
        return GB_CLI_DONE;
    if (isatty(STDOUT_FILENO) && !text)
        return gb_cli_refused(cli, GB_CLI_USAGE, "%zu bytes of %s are not for a terminal; send them into a file",
                              answer->bytes, answer->content_type);
    if (isatty(STDOUT_FILENO)) {
        put_terminal(answer);
        return GB_CLI_DONE;
    }
    fwrite(answer->body, 1, answer->bytes, stdout);
    return GB_CLI_DONE;
}

static int ask(struct gb_cli *cli, char **argv, const char *const *headers, const char *body, size_t bytes) {
    int r;

    do
        r = gpubuf_request(cli->client, argv[0], argv[1], headers, body, bytes, &cli->error);
    while (r < 0 && gb_cli_again(cli));
    return r;
}

int gb_cli_run_call(struct gb_cli *cli, int argc, char **argv) {
    const char *headers[3] = {cli->options.header, NULL, NULL};
    char *body = NULL;
    size_t bytes = 0;
    int r = argc > 2 ? read_body(cli, argv[2], &body, &bytes) : 0;

    if (body && !names_type(cli))
        headers[headers[0] != NULL] = "Content-Type: application/json";
    if (r == 0 && ask(cli, argv, headers, body, bytes) < 0) {
        /* The problem document is the body that was received. */
        cli->options.json |= cli->error.status >= 400 && !cli->host && !isatty(STDOUT_FILENO);
        r = gb_cli_failed(cli);
    } else if (r == 0) {
        r = put_answer(cli, gpubuf_answer_of(cli->client));
    }
    free(body);
    return r;
}
