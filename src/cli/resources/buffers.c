/* What is done with buffers as a whole: ls, info, create, set, rm, fill, reserve, release, seal, switch, verify,
 * export; their bytes on disk: store, load, evict, storage; and map. A command is one request, made of its arguments
 * and the settings that were given, and its answer is shown as one line (gb_cli_show_buffer) or a table. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/transfer/models.h"

#define BUFFER "/v1/sessions/{}/buffers/{}"
#define POLL_MS 100

/* Columns that are left out where no buffer has anything to show in them. */
enum seldom {
    SELDOM_NOT,
    SELDOM_DISK = 1, /* none is durable or on disk */
    SELDOM_ROOM = 2, /* all have the defaults */
    SELDOM_DAMAGE = 4,
    SELDOM_LINK = 8
};

static const struct {
    struct gb_cli_column column;
    enum seldom seldom;
} buffer_columns[] = {
    {{"SESSION", "session", GB_CLI_FORM_TEXT}, SELDOM_NOT}, /* left out where one is listed */
    {{"NAME", "name", GB_CLI_FORM_TEXT}, SELDOM_NOT},
    {{"DTYPE", "dtype", GB_CLI_FORM_TEXT}, SELDOM_NOT},
    {{"SHAPE", "shape", GB_CLI_FORM_SHAPE}, SELDOM_NOT},
    {{"BYTES", "bytes", GB_CLI_FORM_BYTES}, SELDOM_NOT},
    {{"KIND", "kind", GB_CLI_FORM_TEXT}, SELDOM_NOT},
    {{"DEVICE", "device.index", GB_CLI_FORM_COUNT}, SELDOM_NOT},
    {{"HEAD", "head", GB_CLI_FORM_TEXT}, SELDOM_NOT},
    {{"STATE", "state", GB_CLI_FORM_TEXT}, SELDOM_NOT},
    {{"GEN", "generation", GB_CLI_FORM_COUNT}, SELDOM_NOT},
    {{"LEASES", "leases", GB_CLI_FORM_COUNT}, SELDOM_NOT},
    {{"SEALED", "sealed", GB_CLI_FORM_FLAG}, SELDOM_NOT},
    {{"UPDATED (UTC)", "updated_at", GB_CLI_FORM_TIME}, SELDOM_NOT},
    {{"DURABILITY", "durability", GB_CLI_FORM_TEXT}, SELDOM_DISK},
    {{"STORED", "stored_generation", GB_CLI_FORM_COUNT}, SELDOM_DISK},
    {{"TIER", "tier", GB_CLI_FORM_TEXT}, SELDOM_DISK},
    {{"SPILL", "spill", GB_CLI_FORM_TEXT}, SELDOM_ROOM},
    {{"RESIDENT", "resident", GB_CLI_FORM_FLAG}, SELDOM_ROOM},
    {{"DAMAGED", "damaged", GB_CLI_FORM_FLAG}, SELDOM_DAMAGE},
    {{"LINK TO", "link", GB_CLI_FORM_TEXT}, SELDOM_LINK},
};

#define BUFFER_COLUMNS (sizeof(buffer_columns) / sizeof(buffer_columns[0]))

int gb_cli_buffer_target(struct gb_cli *cli, const char *text, const char *action, char *ret) {
    struct gb_cli_name name;

    if (gb_cli_one_name(cli, text, &name) < 0 || gb_cli_target(cli, ret, BUFFER, name.session, name.name) < 0)
        return -1;
    if (strlen(ret) + strlen(action) < GB_CLI_PATH)
        strcat(ret, action);
    return 0;
}

/* A POST to a buffer. The answer; NULL with cli->error set. */
static json_t *post(struct gb_cli *cli, const char *text, const char *action, json_t *body) {
    char target[GB_CLI_PATH];

    if (gb_cli_buffer_target(cli, text, action, target) == 0)
        return gb_cli_post(cli, target, body);
    json_decref(body);
    return NULL;
}

/* Adds "&key=value". -1 with cli->error set. */
static int add_query(struct gb_cli *cli, char *query, const char *key, const char *value) {
    size_t at = strlen(query);
    size_t size = GB_CLI_QUERY - at;
    int n = value ? snprintf(query + at, size, "&%s=", key) : 0;

    if (!value || (n > 0 && (size_t)n < size && gpubuf_escape(value, query + at + n, size - (size_t)n) == 0))
        return 0;
    return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is too long", key);
}

/* A request that has --stream in its query and not in its body, which may be NULL. */
static json_t *request_on(struct gb_cli *cli, const char *method, const char *text, const char *action, json_t *body) {
    const struct gb_cli_options *o = &cli->options;
    char behind[GB_CLI_QUERY];
    char target[GB_CLI_PATH];
    json_t *answer = NULL;
    int n = snprintf(behind, sizeof(behind), "%s", action);

    if (add_query(cli, behind, "when", o->when_unmapped ? "unmapped" : NULL) < 0 ||
        add_query(cli, behind, "stream", o->stream) < 0 || (body && gb_cli_settings(cli, body) < 0))
        goto out;
    if (behind[n] == '&')
        behind[n] = '?';
    json_object_del(body, "stream");
    if (gb_cli_buffer_target(cli, text, behind, target) == 0)
        answer = gb_cli_request(cli, method, target, json_incref(body));

out:
    json_decref(body);
    return answer;
}

static bool is_durable(json_t *buffer) {
    const char *word = gb_cli_text(buffer, "durability"); /* "": of an older daemon */

    return word[0] != '\0' && strcmp(word, "none") != 0;
}

static bool spills(json_t *buffer) {
    const char *word = gb_cli_text(buffer, "spill"); /* "": of an older daemon */

    return word[0] != '\0' && strcmp(word, "never") != 0;
}

static bool is_resident(json_t *buffer) {
    return json_is_true(json_object_get(buffer, "resident"));
}

/* The columns that a table of these buffers has; returns how many. first: 1 without sessions. */
static size_t columns_of(json_t *buffers, size_t first, struct gb_cli_column ret[BUFFER_COLUMNS]) {
    unsigned shown = SELDOM_NOT;
    size_t count = 0;
    json_t *buffer;
    size_t i;

    json_array_foreach(buffers, i, buffer) {
        if (json_is_true(json_object_get(buffer, "damaged")))
            shown |= SELDOM_DAMAGE | SELDOM_ROOM | SELDOM_DISK;
        if (spills(buffer) || is_resident(buffer))
            shown |= SELDOM_ROOM | SELDOM_DISK;
        if (is_durable(buffer) || strcmp(gb_cli_text(buffer, "tier"), "disk") == 0)
            shown |= SELDOM_DISK;
        if (json_is_string(json_object_get(buffer, "link")))
            shown |= SELDOM_LINK;
    }
    for (i = first; i < BUFFER_COLUMNS; i++)
        if ((buffer_columns[i].seldom & ~shown) == 0)
            ret[count++] = buffer_columns[i].column;
    return count;
}

/* Names alone, of sessions that were asked for with these before them. */
static int show_names(struct gb_cli *cli, json_t *items, bool of_sessions) {
    json_t *item;
    size_t i;

    if (!items)
        return gb_cli_failed(cli);
    json_array_foreach(items, i, item) {
        if (of_sessions) {
            gb_cli_put(stdout, gb_cli_text(item, "session"));
            putchar('/');
        }
        gb_cli_put(stdout, gb_cli_text(item, "name"));
        putchar('\n');
    }
    json_decref(items);
    return GB_CLI_DONE;
}

/* Whether the buffer has all of the labels; null: whatever the value. */
static bool has_labels(json_t *buffer, json_t *labels) {
    json_t *own = json_object_get(buffer, "labels");
    const char *key;
    json_t *value;

    json_object_foreach(labels, key, value) {
        json_t *is = json_object_get(own, key);

        if (!is || (!json_is_null(value) && !json_equal(is, value)))
            return false;
    }
    return true;
}

/* What list_query() made, and the labels that the daemon is not asked about: it takes one. */
static json_t *listed(struct gb_cli *cli, const char *pattern, const char *query, json_t *labels) {
    json_t *items = gb_cli_matching(cli, pattern, query);
    size_t i = 0;

    while (i < json_array_size(items))
        if (has_labels(json_array_get(items, i), labels))
            i++;
        else
            json_array_remove(items, i);
    return items;
}

/* The options that pick and order, as the daemon takes them; *ret_labels, the caller's, are all labels. */
static int list_query(struct gb_cli *cli, char *query, json_t **ret_labels) {
    const struct gb_cli_options *o = &cli->options;
    char *first = o->labels ? strndup(o->labels, strcspn(o->labels, ",")) : NULL;
    json_t *body = json_object();
    int r = gb_cli_label_settings(cli, body);

    query[0] = '\0';
    if (r == 0)
        r = add_query(cli, query, "label", first);
    if (r == 0)
        r = add_query(cli, query, "state", o->state);
    if (r == 0)
        r = add_query(cli, query, "kind", o->kind);
    if (r == 0)
        r = add_query(cli, query, "sort", o->sort);
    *ret_labels = json_incref(json_object_get(body, "labels"));
    json_decref(body);
    free(first);
    return r;
}

/* All of a session, which may have none; other patterns and names are of something. */
static bool names_all(const char *pattern) {
    const char *slash = strrchr(pattern, '/');
    const char *name = slash ? slash + 1 : pattern;

    return name[0] == '\0' || strcmp(name, "*") == 0;
}

/* Whether options are given that are of buffers, and not of what they hold. */
static bool picks_buffers(const struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;

    return o->kind || o->labels || o->state || o->sort;
}

static const struct gb_cli_column tensor_columns[] = {
    {"TENSOR", "name", GB_CLI_FORM_TEXT},    {"DTYPE", "dtype", GB_CLI_FORM_TEXT},
    {"SHAPE", "shape", GB_CLI_FORM_SHAPE},   {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"OFFSET", "offset", GB_CLI_FORM_COUNT}, {"BUFFER", "buffer", GB_CLI_FORM_TEXT}, /* of a model's shards */
};

/* The tensors of a buffer, or of a model, whose buffers are several. */
static int list_tensors(struct gb_cli *cli, const struct gb_cli_name *name, bool model) {
    const char *prefix = cli->options.prefix;
    json_t *items = model ? gb_cli_model_tensors(cli, name, prefix) : gb_cli_tensors(cli, name, prefix);

    if (cli->options.quiet && !cli->options.json)
        return show_names(cli, items, false);
    return gb_cli_show(cli, items, tensor_columns,
                       sizeof(tensor_columns) / sizeof(tensor_columns[0]) - (model ? 0 : 1));
}

/* Whether a buffer, one that is named and not matched, is listed by its tensors: a table, and any with --prefix. */
static bool is_listed_by_tensors(const struct gb_cli *cli, json_t *items) {
    json_t *first = json_array_get(items, 0);

    return first && (cli->options.prefix || strcmp(gb_cli_text(first, "dtype"), "tensors") == 0);
}

/* ls NAME. -1: it is a buffer like others, or none, and is listed so. */
static int list_named(struct gb_cli *cli, const char *text, json_t *items) {
    struct gb_cli_name name;

    if (names_all(text) || gb_cli_name(cli, text, &name) < 0)
        return -1;
    if (is_listed_by_tensors(cli, items))
        return list_tensors(cli, &name, false);
    if (json_array_size(items) > 0)
        return -1;
    if (gb_cli_is_model(cli, &name))
        return list_tensors(cli, &name, true);
    return cli->error.code == GPUBUF_OK ? -1 : gb_cli_failed(cli);
}

int gb_cli_run_ls(struct gb_cli *cli, int argc, char **argv) {
    const char *pattern = argc > 0 ? argv[0] : "*";
    bool of_sessions = strchr(pattern, '/') != NULL;
    struct gb_cli_column columns[BUFFER_COLUMNS];
    size_t count;
    char query[GB_CLI_QUERY];
    json_t *labels;
    json_t *items = NULL;
    int r = -1;

    if ((gb_cli_is_pattern(pattern) || names_all(pattern) || picks_buffers(cli)) &&
        gb_cli_options_idle(&cli->options, "prefix",
                            "it is of the tensors of one buffer, gpubuf ls NAME; names of buffers are picked by a "
                            "pattern in quotes") < 0)
        return GB_CLI_USAGE;
    if (list_query(cli, query, &labels) == 0)
        items = listed(cli, pattern, query, labels);
    json_decref(labels);
    if (items && !gb_cli_is_pattern(pattern) && !picks_buffers(cli))
        r = list_named(cli, pattern, items);
    if (r >= 0) {
        json_decref(items);
        return r;
    }
    if (items && json_array_size(items) == 0 && !names_all(pattern)) {
        json_decref(items);
        return gb_cli_none_matches(cli, pattern);
    }
    if (cli->options.quiet && !cli->options.json)
        return show_names(cli, items, of_sessions);
    count = columns_of(items, !of_sessions, columns);
    return gb_cli_show(cli, items, columns, count);
}

/* The daemon, whether it is ready, and its devices. */
static json_t *whole(struct gb_cli *cli) {
    json_t *root = gb_cli_request(cli, "GET", "/v1", NULL);
    json_t *devices = root ? gb_cli_items(cli, "/v1/devices") : NULL;

    if (!devices) {
        json_decref(root);
        return NULL;
    }
    json_object_del(root, "links");
    json_object_set_new(root, "devices", devices);
    return root;
}

/* Whether, after a buffer was not found, its name is that of a model. */
static bool meant_model(struct gb_cli *cli, const char *text, struct gb_cli_name *ret) {
    struct gpubuf_error told = cli->error;
    bool is = told.code == GPUBUF_BUFFER_NOT_FOUND && gb_cli_name(cli, text, ret) == 0 && gb_cli_is_model(cli, ret);

    cli->error = told;
    return is;
}

int gb_cli_run_info(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    struct gb_cli_name name;
    char target[GB_CLI_PATH];
    json_t *buffer;
    char query[64];

    if (argc == 0 && gb_cli_options_idle(o, "attributes last-transfer", "it is of a buffer: gpubuf info NAME") < 0)
        return GB_CLI_USAGE;
    if (argc == 0)
        return gb_cli_show(cli, whole(cli), NULL, 0);
    snprintf(query, sizeof(query), "%s%s%s", o->attributes || o->last_transfer ? "?" : "",
             o->attributes ? "attributes=true&" : "", o->last_transfer ? "last_transfer=true" : "");
    if (gb_cli_buffer_target(cli, argv[0], query, target) < 0)
        return gb_cli_failed(cli);
    buffer = gb_cli_request(cli, "GET", target, NULL);
    if (!buffer && meant_model(cli, argv[0], &name))
        return gb_cli_show_model(cli, &name);
    return gb_cli_show(cli, buffer, NULL, 0);
}

int gb_cli_run_create(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_name name;
    char target[GB_CLI_PATH];
    const struct gb_cli_options *o = &cli->options;
    json_t *body = json_object();
    json_t *answer;

    (void)argc;
    if (!o->given[GB_CLI_ID_bytes] && !o->shape) {
        json_decref(body);
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "create needs a size: --bytes N, or --shape N,N... and --dtype (uint8 without it)");
    }
    if (!o->dtype && !o->given[GB_CLI_ID_bytes])
        json_object_set_new(body, "dtype", json_string("uint8"));
    if (gb_cli_one_name(cli, argv[0], &name) < 0 ||
        gb_cli_target(cli, target, "/v1/sessions/{}/buffers", name.session) < 0 ||
        gb_cli_buffer_settings(cli, body) < 0) {
        json_decref(body);
        return gb_cli_failed(cli);
    }
    json_object_set_new(body, "name", json_string(name.name));
    answer = gb_cli_request(cli, "POST", target, body);
    if (!answer && cli->options.exist_ok && cli->error.code == GPUBUF_BUFFER_EXISTS &&
        gb_cli_buffer_target(cli, argv[0], "", target) == 0)
        answer = gb_cli_request(cli, "GET", target, NULL);
    return gb_cli_show_buffer(cli, answer);
}

struct change {
    json_t *body;
    json_t *answers;
};

static int set_one(struct gb_cli *cli, const char *text, void *arg) {
    struct change *change = arg;
    char target[GB_CLI_PATH];
    json_t *answer = NULL;

    if (gb_cli_buffer_target(cli, text, "", target) == 0)
        answer = gb_cli_request(cli, "PATCH", target, json_incref(change->body));
    if (!answer)
        return gb_cli_failed(cli);
    json_array_append(change->answers, answer);
    if (!cli->options.json)
        return gb_cli_show_buffer(cli, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

/* One name gives one JSON object, as it always did; several or a pattern give an array. */
int gb_cli_run_set(struct gb_cli *cli, int argc, char **argv) {
    struct change change = {json_object(), json_array()};
    bool several = argc > 1 || gb_cli_is_pattern(argv[0]);
    int r;

    if (gb_cli_buffer_settings(cli, change.body) < 0)
        r = gb_cli_failed(cli);
    else if (json_object_size(change.body) == 0)
        r = gb_cli_refused(cli, GB_CLI_USAGE,
                           "there is nothing to set: give --labels, --dtype, --shape, --durability, --spill, "
                           "--resident or --no-resident");
    else
        r = gb_cli_each_buffer(cli, argc, argv, set_one, &change);
    if (r == GB_CLI_DONE && cli->options.json)
        gb_cli_json(stdout, several ? change.answers : json_array_get(change.answers, 0));
    json_decref(change.body);
    json_decref(change.answers);
    return r;
}

static void put_going(const char *name) {
    gb_cli_put(stdout, name);
    puts(" goes when its last mapping ends");
}

/* arg: the array of those that went. */
static int remove_one(struct gb_cli *cli, const char *text, void *arg) {
    json_t *answer = request_on(cli, "DELETE", text, "", NULL);
    struct gb_cli_name name;
    int r = GB_CLI_DONE;

    if (!answer && cli->error.code == GPUBUF_BUFFER_NOT_FOUND && !gb_cli_is_pattern(text) &&
        gb_cli_name(cli, text, &name) == 0 && gb_cli_is_model(cli, &name))
        r = gb_cli_rm_model(cli, &name);
    else if (!answer && cli->error.code == GPUBUF_BUFFER_NOT_FOUND && gb_cli_name(cli, text, &name) == 0)
        r = gb_cli_model_absent(cli, &name);
    else if (!answer)
        r = gb_cli_failed(cli);
    if (r != GB_CLI_DONE)
        return r;
    json_array_append_new(arg, json_string(text));
    if (!answer)
        return r;
    if (!cli->options.json && gpubuf_answer_of(cli->client)->status == 202)
        put_going(text);
    json_decref(answer);
    return GB_CLI_DONE;
}

/* A pattern does not show what it matches: how many went is said where a user reads it. */
static void put_count(const struct gb_cli *cli, int argc, char **argv, size_t count) {
    bool pattern = false;
    int i;

    for (i = 0; i < argc; i++)
        pattern |= gb_cli_is_pattern(argv[i]);
    if (pattern && (gb_cli_draws(cli) || cli->options.verbose))
        fprintf(stderr, "gpubuf: deleted %zu buffer%s\n", count, count == 1 ? "" : "s");
}

int gb_cli_run_rm(struct gb_cli *cli, int argc, char **argv) {
    json_t *gone = json_array();
    int worst = gb_cli_confirm(cli, argc, argv, "delete");

    if (worst == GB_CLI_DONE)
        worst = gb_cli_each_buffer(cli, argc, argv, remove_one, gone);
    put_count(cli, argc, argv, json_array_size(gone));
    if (cli->options.json && worst == GB_CLI_DONE)
        gb_cli_json(stdout, gone);
    json_decref(gone);
    return worst;
}

/* A number where JSON's integers hold it, hexadecimal text above. NULL with cli->error set: it is neither. */
static json_t *pattern_of(struct gb_cli *cli, const char *text) {
    bool decimal = text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
    bool hexadecimal = strncmp(text, "0x", 2) == 0 && text[2] != '\0' &&
                       strspn(text + 2, "0123456789abcdefABCDEF") == strlen(text + 2);
    unsigned long long value;
    char hex[24];

    errno = 0;
    value = strtoull(text, NULL, hexadecimal ? 16 : 10);
    if ((!decimal && !hexadecimal) || errno != 0) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                     "PATTERN \"%s\" is no integer of at most 8 bytes: decimal, or 0x and hexadecimal digits. It is "
                     "written as it is, whatever the dtype: 1.0 of float32 is 0x3f800000 with --width 4",
                     text);
        return NULL;
    }
    if (hexadecimal)
        return json_string(text);
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(hex, sizeof(hex), "0x%llx", value);
    return json_string(hex);
}

int gb_cli_run_fill(struct gb_cli *cli, int argc, char **argv) {
    json_t *pattern = pattern_of(cli, argv[1]);

    (void)argc;
    if (!pattern)
        return gb_cli_failed(cli);
    return gb_cli_show_buffer(cli,
                              post(cli, argv[0], "/fill", json_pack("{s:o, s:i}", "pattern", pattern, "width", 1)));
}

/* Shows an answer as it is, or each buffer of an array in it; the buffer may be a member of the item. Takes answer. */
static int show_each(struct gb_cli *cli, json_t *answer, json_t *items, const char *member) {
    int r = GB_CLI_DONE;
    json_t *item;
    size_t i;

    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    json_array_foreach(items, i, item) {
        if (r == GB_CLI_DONE)
            r = gb_cli_show_buffer(cli, json_incref(member ? json_object_get(item, member) : item));
    }
    json_decref(answer);
    return r;
}

static json_t *seal(struct gb_cli *cli, const struct gb_cli_name *name) {
    char text[2 * GPUBUF_NAME_SIZE];

    snprintf(text, sizeof(text), "%s/%s", name->session, name->name);
    return request_on(cli, "POST", text, "/seal", json_object());
}

int gb_cli_run_seal(struct gb_cli *cli, int argc, char **argv) {
    json_t *answer = request_on(cli, "POST", argv[0], "/seal", json_object());
    struct gb_cli_name name;

    (void)argc;
    if (answer || !meant_model(cli, argv[0], &name))
        return gb_cli_show_buffer(cli, answer);
    answer = gb_cli_seal_model(cli, &name, seal);
    return show_each(cli, answer, answer, NULL);
}

static int show_switched(struct gb_cli *cli, json_t *answer) {
    return show_each(cli, answer, json_object_get(answer, "results"), "result");
}

/* All links in one step: none of them is seen without the others. NULL with cli->error set. */
static json_t *switch_several(struct gb_cli *cli, int argc, char **argv) {
    json_t *operations = json_array();
    json_t *body = json_pack("{s:O, s:b}", "operations", operations, "atomic", 1);
    struct gb_cli_name first;
    struct gb_cli_name name;
    char target[GB_CLI_PATH];
    int i;

    json_decref(operations);
    for (i = 0; i < argc; i += 2) {
        if (gb_cli_one_name(cli, argv[i], &name) < 0)
            goto fail;
        first = i == 0 ? name : first;
        if (strcmp(first.session, name.session) != 0) {
            gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                         "links that change in one step are of one session, and %s is of \"%s\"", argv[i],
                         name.session);
            goto fail;
        }
        json_array_append_new(operations, json_pack("{s:s, s:s, s:s, s:b}", "op", "copy", "buffer", name.name, "from",
                                                    argv[i + 1], "share", 1));
    }
    if (cli->options.stream)
        json_object_set_new(body, "stream", json_string(cli->options.stream));
    if (gb_cli_target(cli, target, "/v1/sessions/{}/batch", first.session) == 0)
        return gb_cli_request(cli, "POST", target, body);
fail:
    json_decref(body);
    return NULL;
}

static json_t *switch_all(struct gb_cli *cli, int argc, char **argv) {
    if (argc > 2)
        return switch_several(cli, argc, argv);
    return post(cli, argv[0], "/copy", json_pack("{s:s, s:b}", "from", argv[1], "share", 1));
}

/* The same after the daemon did not find a buffer: models are switched by their indexes. */
static json_t *switch_models(struct gb_cli *cli, int argc, char **argv) {
    char **texts = calloc((size_t)argc, sizeof(*texts));
    json_t *answer = NULL;
    int i;

    if (!texts)
        gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    else if (gb_cli_switch_models(cli, argc, argv, texts) > 0)
        answer = switch_all(cli, argc, texts);
    for (i = 0; texts && i < argc; i++)
        free(texts[i]);
    free(texts);
    return answer;
}

int gb_cli_run_switch(struct gb_cli *cli, int argc, char **argv) {
    json_t *answer;

    if (argc % 2 != 0)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "switch takes pairs: NAME, and the sealed buffer that it becomes a link to");
    answer = switch_all(cli, argc, argv);
    if (!answer)
        answer = switch_models(cli, argc, argv);
    if (!answer)
        return gb_cli_failed(cli);
    return argc > 2 ? show_switched(cli, answer) : gb_cli_show_buffer(cli, answer);
}

int gb_cli_run_reserve(struct gb_cli *cli, int argc, char **argv) {
    bool has_elements = cli->options.given[GB_CLI_ID_elements];
    bool has_dtype = cli->options.dtype != NULL;
    json_t *body;
    uint64_t bytes;

    if (has_elements != has_dtype || has_elements == (argc > 1))
        return gb_cli_refused(cli, GB_CLI_USAGE, "reserve needs a size: BYTES, or --elements N and --dtype DTYPE");
    if (argc > 1 && (gb_cli_size(argv[1], &bytes) < 0 || bytes > INT64_MAX))
        return gb_cli_refused(cli, GB_CLI_USAGE, "\"%s\" is no size: give bytes, such as 4096, 64K or 2M", argv[1]);
    body = json_pack("{s:s}", "side", "host");
    if (argc > 1)
        json_object_set_new(body, "bytes", json_integer((json_int_t)bytes));
    return gb_cli_show_buffer(cli, post(cli, argv[0], "/reserve", body));
}

int gb_cli_run_release(struct gb_cli *cli, int argc, char **argv) {
    (void)argc;
    return gb_cli_show_buffer(cli, request_on(cli, "POST", argv[0], "/release", json_pack("{s:s}", "side", "host")));
}

int gb_cli_run_verify(struct gb_cli *cli, int argc, char **argv) {
    json_t *answer = request_on(cli, "POST", argv[0], "/verify", json_object());
    bool differ = answer && json_is_false(json_object_get(answer, "match")); /* null: with nothing to compare it */

    (void)argc;
    if (!differ || cli->options.json) {
        int r = gb_cli_show(cli, answer, NULL, 0);

        return differ ? GB_CLI_FAILED : r;
    }
    json_decref(answer);
    return gb_cli_refused(cli, GB_CLI_FAILED, "%s does not have the bytes that were put into it", argv[0]);
}

static int check_mode(struct gb_cli *cli) {
    const char *mode = cli->options.mode;

    if (mode && strcmp(mode, "read") != 0 && strcmp(mode, "write") != 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--mode is read or write");
    return 0;
}

int gb_cli_run_export(struct gb_cli *cli, int argc, char **argv) {
    (void)argc;
    if (check_mode(cli) < 0)
        return gb_cli_failed(cli);
    return gb_cli_show(cli, post(cli, argv[0], "/export", json_object()), NULL, 0);
}

/* Of a mirrored buffer: which side is current, what each has, and of a sync whether it copied. */
static void put_sides(json_t *buffer) {
    json_t *copied = json_object_get(buffer, "copied");
    char host[24];
    char device[24];

    if (!json_is_true(json_object_get(buffer, "mirrored")))
        return;
    fputs("  head ", stdout);
    gb_cli_put(stdout, gb_cli_text(buffer, "head"));
    printf("  host side %s  device side %s",
           gb_cli_bytes_text((uint64_t)gb_cli_number(buffer, "sides.host.bytes"), host),
           gb_cli_bytes_text((uint64_t)gb_cli_number(buffer, "sides.device.bytes"), device));
    if (copied)
        fputs(json_is_true(copied) ? "  copied" : "  nothing copied", stdout);
}

/* What the disk has of a durable buffer, where it is not what memory has. */
static void put_durability(json_t *buffer) {
    json_t *stored = json_object_get(buffer, "stored_generation");

    if (!is_durable(buffer))
        return;
    fputs("  durability ", stdout);
    gb_cli_put(stdout, gb_cli_text(buffer, "durability"));
    if (!json_is_integer(stored))
        fputs(", not on disk yet", stdout);
    else if (!json_equal(stored, json_object_get(buffer, "generation")))
        printf(", generation %lld on disk", (long long)json_integer_value(stored));
}

/* What may take the bytes out of memory, or may not, where it is not the default. */
static void put_place(json_t *buffer) {
    if (spills(buffer)) {
        fputs("  spill ", stdout);
        gb_cli_put(stdout, gb_cli_text(buffer, "spill"));
    }
    if (is_resident(buffer))
        fputs("  resident", stdout);
}

static void put_link(json_t *buffer) {
    if (!json_is_string(json_object_get(buffer, "link")))
        return;
    fputs("  link to ", stdout);
    gb_cli_put(stdout, gb_cli_text(buffer, "link"));
}

int gb_cli_show_buffer(struct gb_cli *cli, json_t *buffer) {
    char shape[GB_CLI_CELL];
    char size[24];

    if (!buffer || cli->options.json)
        return gb_cli_show(cli, buffer, NULL, 0);
    if (!cli->options.quiet) {
        gb_cli_cell(buffer, &(struct gb_cli_column){"", "shape", GB_CLI_FORM_SHAPE}, shape);
        gb_cli_put(stdout, gb_cli_text(buffer, "name"));
        printf("  %s  ", gb_cli_bytes_text((uint64_t)gb_cli_number(buffer, "bytes"), size));
        gb_cli_put(stdout, gb_cli_text(buffer, "dtype"));
        putchar(' ');
        gb_cli_put(stdout, shape);
        printf("  generation %.0f%s", gb_cli_number(buffer, "generation"),
               json_is_true(json_object_get(buffer, "sealed")) ? "  sealed" : "");
        put_link(buffer);
        put_sides(buffer);
        put_durability(buffer);
        put_place(buffer);
        putchar('\n');
    }
    json_decref(buffer);
    return GB_CLI_DONE;
}

/* --- bytes on disk ------------------------------------------------------------------------------------------------ */

static int end_each(struct gb_cli *cli, json_t *answers, int status) {
    if (cli->options.json && status == GB_CLI_DONE)
        gb_cli_json(stdout, answers);
    json_decref(answers);
    return status;
}

/* arg: the array of the answers, as of load_one. */
static int store_one(struct gb_cli *cli, const char *text, void *arg) {
    json_t *answer = request_on(cli, "POST", text, "/store", json_object());
    char size[24];

    if (!answer)
        return gb_cli_failed(cli);
    json_object_set_new(answer, "buffer", json_string(text));
    if (!cli->options.json && !cli->options.quiet) {
        gb_cli_put(stdout, text);
        printf("  %s  generation %.0f on disk  %s\n", gb_cli_bytes_text((uint64_t)gb_cli_number(answer, "bytes"), size),
               gb_cli_number(answer, "stored_generation"),
               json_is_true(json_object_get(answer, "wrote")) ? "written" : "nothing to write");
    }
    json_array_append_new(arg, answer);
    return GB_CLI_DONE;
}

int gb_cli_run_store(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, store_one, answers));
}

/* A request waits no longer than the daemon's --wait-max; the load continues, and the next request waits for it. */
static int load_one(struct gb_cli *cli, const char *text, void *arg) {
    json_t *answer;

    do
        answer = post(cli, text, "/load", json_object());
    while (!answer && cli->error.code == GPUBUF_TIMED_OUT);
    if (!answer)
        return gb_cli_failed(cli);
    json_array_append(arg, answer);
    if (!cli->options.json)
        return gb_cli_show_buffer(cli, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

int gb_cli_run_load(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, load_one, answers));
}

static void put_evicted(const char *text, json_t *buffer) {
    bool kept = gb_cli_number(buffer, "stored_generation") > 0;
    char size[24];

    gb_cli_put(stdout, text);
    printf("  %s  ", gb_cli_bytes_text((uint64_t)gb_cli_number(buffer, "bytes"), size));
    if (strcmp(gb_cli_text(buffer, "state"), "stored") != 0)
        puts("in memory: it was mapped meanwhile");
    else if (strcmp(gb_cli_text(buffer, "tier"), "host") == 0)
        puts(kept ? "in host memory and on disk" : "in host memory until the daemon ends");
    else
        puts(kept ? "on disk" : "on disk until the daemon ends");
}

static int evict_one(struct gb_cli *cli, const char *text, void *arg) {
    json_t *answer = request_on(cli, "POST", text, "/evict", json_object());

    if (!answer)
        return gb_cli_failed(cli);
    if (!cli->options.json && !cli->options.quiet)
        put_evicted(text, answer);
    json_array_append_new(arg, answer);
    return GB_CLI_DONE;
}

int gb_cli_run_evict(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, evict_one, answers));
}

static void put_scrubbed(json_t *answer) {
    static const struct gb_cli_column columns[] = {
        {"SESSION", "session", GB_CLI_FORM_TEXT},
        {"DAMAGED", "buffer", GB_CLI_FORM_TEXT},
        {"WHY", "code", GB_CLI_FORM_TEXT},
        {"HEALED", "healed", GB_CLI_FORM_FLAG},
    };
    json_t *found = json_incref(json_object_get(answer, "found"));

    json_object_del(answer, "found");
    gb_cli_details(stdout, answer);
    if (json_array_size(found) > 0) {
        putchar('\n');
        gb_cli_table(stdout, columns, sizeof(columns) / sizeof(columns[0]), found);
    }
    json_decref(found);
}

/* Waits for the end of the pass, which may take hours. */
static int scrub(struct gb_cli *cli) {
    json_t *answer = gb_cli_request_long(cli, "/v1/storage/scrub", json_object());
    double left;

    if (!answer)
        return gb_cli_failed(cli);
    left = gb_cli_number(answer, "damaged") - gb_cli_number(answer, "healed");
    if (cli->options.json)
        gb_cli_json(stdout, answer);
    else if (!cli->options.quiet)
        put_scrubbed(answer);
    json_decref(answer);
    if (left == 0)
        return GB_CLI_DONE;
    return cli->options.json
               ? GB_CLI_FAILED
               : gb_cli_refused(cli, GB_CLI_FAILED, "%.0f damaged files could not be written again from memory", left);
}

int gb_cli_run_storage(struct gb_cli *cli, int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "scrub") == 0)
        return scrub(cli);
    if (argc > 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "storage: there is no word \"%.64s\"; permitted: scrub, or none",
                              argv[0]);
    if (gb_cli_options_idle(&cli->options, "rate", "it is of a search for damage: gpubuf storage scrub") < 0)
        return GB_CLI_USAGE;
    return gb_cli_show(cli, gb_cli_request(cli, "GET", "/v1/storage", NULL), NULL, 0);
}

/* --- map: takes a mapping, says which way it went, and may hold it ------------------------------------------------ */

static const struct {
    const char *name;
    unsigned bit;
} ways[] = {
    {"vmm", GPUBUF_WAY_VMM}, {"pool", GPUBUF_WAY_POOL}, {"legacy", GPUBUF_WAY_LEGACY}, {"memfd", GPUBUF_WAY_MEMFD}};

/* -1 if a word is not one of them. */
static int read_ways(const char *text, unsigned *ret) {
    unsigned mask = 0;

    while (text && *text != '\0') {
        size_t n = strcspn(text, ",");
        unsigned bit = 0;
        size_t i;

        for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
            if (strlen(ways[i].name) == n && strncmp(ways[i].name, text, n) == 0)
                bit = ways[i].bit;
        if (bit == 0)
            return -1;
        mask |= bit;
        text += n + (text[n] == ',');
    }
    *ret = mask;
    return 0;
}

static json_t *mapping_json(const struct gpubuf_mapping_info *info, double seconds) {
    double map_ms = (double)(uint64_t)(seconds * 1e6) / 1e3;
    json_t *passed = json_array();
    size_t i;

    for (i = 0; i < info->passed_over_count && i < GPUBUF_WAYS; i++)
        json_array_append_new(
            passed, json_pack("{s:s, s:s}", "way", info->passed_over[i].way, "reason", info->passed_over[i].reason));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:o}", "lease", info->lease, "session",
                     info->session, "buffer", info->buffer, "mode", info->write ? "write" : "read", "way",
                     info->way_name, "kind", info->kind, "bytes", (json_int_t)info->bytes, "generation",
                     (json_int_t)info->generation, "map_ms", map_ms, "passed_over", passed);
}

/* Until standard input ends, an interrupt comes, or the daemon goes. */
static bool hold(struct gb_cli *cli, const gpubuf_mapping *mapping) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char waste[512];

    while (!atomic_load(&cli->interrupted)) {
        if (!gpubuf_mapping_alive(mapping))
            return false;
        if (poll(&in, 1, POLL_MS) > 0 && read(STDIN_FILENO, waste, sizeof(waste)) <= 0)
            return true;
    }
    return true;
}

int gb_cli_run_map(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    struct gpubuf_map_params params = {0};
    gpubuf_mapping *mapping = NULL;
    struct gb_cli_name name;
    double began;
    bool alive = true;
    int unshown;

    (void)argc;
    if (gb_cli_one_name(cli, argv[0], &name) < 0 || check_mode(cli) < 0)
        return gb_cli_failed(cli);
    if (read_ways(o->ways, &params.ways) < 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--ways are some of vmm,pool,legacy,memfd");
    params.write = o->mode && strcmp(o->mode, "write") == 0;
    began = gb_cli_now();
    if (gpubuf_map(cli->client, name.session, name.name, &params, &mapping, &cli->error) < 0)
        return gb_cli_failed(cli);
    gb_cli_show(cli, mapping_json(gpubuf_mapping_info_of(mapping), gb_cli_now() - began), NULL, 0);
    unshown = fflush(stdout) == 0 ? 0 : errno;
    if (o->hold && unshown == 0)
        alive = hold(cli, mapping);
    if (gpubuf_unmap(mapping, &cli->error) < 0 && alive && !atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    if (!alive)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the daemon has gone, and the mapping with it");
    if (unshown != 0)
        return gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(unshown));
    return atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : GB_CLI_DONE;
}
