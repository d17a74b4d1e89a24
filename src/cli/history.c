#include "cli/history.h"

#include <string.h>

#define COLUMNS_MAX 16 /* of a table */

/* Levels as they were at the end of a step, and what grew in it. Each history has some of these. */
static const struct gb_cli_column columns[] = {
    {"AT (UTC)", "at", GB_CLI_FORM_TIME},
    {"SESSIONS", "sessions.last", GB_CLI_FORM_COUNT},
    {"BUFFERS", "buffers.last", GB_CLI_FORM_COUNT},
    {"OF", "buffer_bytes.last", GB_CLI_FORM_BYTES},
    {"PINNED", "pinned_bytes.last", GB_CLI_FORM_BYTES},
    {"USED", "used_bytes.last", GB_CLI_FORM_BYTES},
    {"RESERVED", "reserved_bytes.last", GB_CLI_FORM_BYTES},
    {"FREE", "free_bytes.last", GB_CLI_FORM_BYTES},
    {"UPLOADED", "upload_bytes.delta", GB_CLI_FORM_BYTES},
    {"DOWNLOADED", "download_bytes.delta", GB_CLI_FORM_BYTES},
    {"COPYING (S)", "copy_seconds.delta", GB_CLI_FORM_REAL},
    {"WAITING (S)", "queue_seconds.delta", GB_CLI_FORM_REAL},
    {"ALLOCATIONS", "allocations.delta", GB_CLI_FORM_COUNT},
    {"FREES", "frees.delta", GB_CLI_FORM_COUNT},
    {"REFUSED", "allocation_failures.delta", GB_CLI_FORM_COUNT},
    {"GPU (%)", "gpu_utilization.mean", GB_CLI_FORM_REAL},
};
_Static_assert(sizeof columns / sizeof columns[0] <= COLUMNS_MAX, "a table has no more columns");

bool gb_cli_history_wanted(const struct gb_cli_options *o) {
    return o->since != NULL || o->until != NULL || o->given[GB_CLI_ID_step];
}

static int add(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    size_t n;

    if (value == NULL)
        return 0;
    n = (size_t)snprintf(target + at, GB_CLI_PATH - at, "%c%s=", strchr(target, '?') != NULL ? '&' : '?', key);
    if (at + n >= GB_CLI_PATH || gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is too long", key);
    return 0;
}

int gb_cli_history_target(struct gb_cli *cli, char *target) {
    const struct gb_cli_options *o = &cli->options;
    char step[24];

    snprintf(step, sizeof step, "%llu", (unsigned long long)o->step);
    if (add(cli, target, "since", o->since) < 0 || add(cli, target, "until", o->until) < 0)
        return -1;
    return add(cli, target, "step", o->given[GB_CLI_ID_step] ? step : NULL);
}

static bool some_has(json_t *items, const char *path) {
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item) {
        if (gb_cli_at(item, path) != NULL)
            return true;
    }
    return false;
}

int gb_cli_history_show(struct gb_cli *cli, json_t *history) {
    struct gb_cli_column had[COLUMNS_MAX];
    json_t *items = json_object_get(history, "items");
    size_t count = 0;
    size_t i;

    if (history == NULL || cli->options.json)
        return gb_cli_show(cli, history, NULL, 0);
    for (i = 0; i < sizeof columns / sizeof columns[0]; i++)
        if (i == 0 || some_has(items, columns[i].path))
            had[count++] = columns[i];
    gb_cli_table(stdout, had, count, items);
    if (!cli->options.quiet && gb_cli_text(history, "note")[0] != '\0') {
        fputs("gpubuf: ", stderr);
        gb_cli_put(stderr, gb_cli_text(history, "note"));
        fputs("\n", stderr);
    }
    json_decref(history);
    return GB_CLI_DONE;
}
