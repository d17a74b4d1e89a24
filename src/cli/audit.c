/* audit: the records of the daemon's audit, oldest first, and with --follow those that come. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define PAGE_MAX 1000
#define RECORDS 100 /* the newest, without --limit and --since */
#define FOLLOW_MS 1000

static const struct gb_cli_column columns[] = {
    {"AT (UTC)", "at", GB_CLI_FORM_TIME},        {"EVENT", "event", GB_CLI_FORM_TEXT},
    {"ADDRESS", "address", GB_CLI_FORM_TEXT},    {"WHO", "who", GB_CLI_FORM_TEXT},
    {"METHOD", "method", GB_CLI_FORM_TEXT},      {"ROUTE", "route", GB_CLI_FORM_TEXT},
    {"SESSION", "session", GB_CLI_FORM_TEXT},    {"OBJECT", "object", GB_CLI_FORM_TEXT},
    {"STATUS", "status", GB_CLI_FORM_COUNT},     {"CODE", "code", GB_CLI_FORM_TEXT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},       {"COUNT", "count", GB_CLI_FORM_COUNT},
    {"REQUEST", "request_id", GB_CLI_FORM_TEXT},
};
#define COLUMNS (sizeof columns / sizeof columns[0])

/* A filter of the query, if it is given. */
static int add(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    size_t n;

    if (value == NULL)
        return 0;
    n = (size_t)snprintf(target + at, GB_CLI_PATH - at, "&%s=", key);
    if (at + n >= GB_CLI_PATH || gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is too long", key);
    return 0;
}

static json_t *ask(struct gb_cli *cli, unsigned long long limit, const char *cursor) {
    const struct gb_cli_options *o = &cli->options;
    char target[GB_CLI_PATH];

    snprintf(target, sizeof target, "/v1/audit?limit=%llu", limit < PAGE_MAX ? limit : PAGE_MAX);
    if (add(cli, target, "since", o->since) < 0 || add(cli, target, "until", o->until) < 0 ||
        add(cli, target, "session", o->session) < 0 || add(cli, target, "token", o->token) < 0 ||
        add(cli, target, "status", o->status) < 0 || add(cli, target, "cursor", cursor[0] != '\0' ? cursor : NULL) < 0)
        return NULL;
    return gb_cli_request(cli, "GET", target, NULL);
}

/* Moves the records above after_id, at most `most` in all. Returns true if older ones may follow. */
static bool take(json_t *records, json_t *page, json_int_t after_id, unsigned long long most) {
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(page, "items"), i, item) {
        if (json_array_size(records) >= most || (json_int_t)gb_cli_number(item, "id") <= after_id)
            return false;
        json_array_append(records, item);
    }
    return json_array_size(records) < most;
}

/* The newest records, newest first. NULL with cli->error set. */
static json_t *collect(struct gb_cli *cli, json_int_t after_id, unsigned long long most) {
    json_t *records = json_array();
    char cursor[64] = "";
    bool more = true;

    while (more) {
        json_t *page = ask(cli, most - json_array_size(records), cursor);

        if (page == NULL) {
            json_decref(records);
            return NULL;
        }
        more = take(records, page, after_id, most);
        snprintf(cursor, sizeof cursor, "%s", gb_cli_text(page, "next_cursor"));
        more = more && cursor[0] != '\0';
        json_decref(page);
    }
    return records;
}

/* Oldest first; a token's name, or the subject of a certificate, stands in one column. */
static json_t *turn(json_t *records) {
    json_t *rows = json_array();
    size_t i;

    for (i = json_array_size(records); i > 0; i--) {
        json_t *row = json_array_get(records, i - 1);
        json_t *token = json_object_get(row, "token");
        json_t *who = token != NULL ? token : json_object_get(row, "certificate");

        if (who != NULL)
            json_object_set(row, "who", who);
        json_array_append(rows, row);
    }
    json_decref(records);
    return rows;
}

static void put_lines(json_t *records) {
    size_t i;

    for (i = json_array_size(records); i > 0; i--)
        gb_cli_json(stdout, json_array_get(records, i - 1));
    json_decref(records);
}

static void put_rows(json_t *records) {
    json_t *rows = turn(records);
    char cell[GB_CLI_CELL];
    json_t *row;
    size_t i;
    size_t k;

    json_array_foreach(rows, i, row) {
        for (k = 0; k < COLUMNS; k++) {
            gb_cli_cell(row, &columns[k], cell);
            if (cell[0] != '\0' && strcmp(cell, "-") != 0)
                printf("%s%s", k > 0 ? "  " : "", cell);
        }
        putchar('\n');
    }
    json_decref(rows);
}

/* False: the reader of standard output is gone. */
static bool pause_for_more(const struct gb_cli *cli) {
    struct pollfd out = {.fd = STDOUT_FILENO};

    if (fflush(stdout) != 0)
        return false;
    poll(&out, 1, FOLLOW_MS);
    return !(out.revents & POLLERR) || atomic_load(&cli->interrupted);
}

static int follow(struct gb_cli *cli, json_t *records) {
    json_int_t last = 0;

    while (records != NULL && !atomic_load(&cli->interrupted)) {
        if (json_array_size(records) > 0)
            last = (json_int_t)gb_cli_number(json_array_get(records, 0), "id");
        if (cli->options.json)
            put_lines(records);
        else
            put_rows(records);
        if (!pause_for_more(cli))
            return freopen("/dev/null", "w", stdout) != NULL ? GB_CLI_DONE : GB_CLI_FAILED;
        records = atomic_load(&cli->interrupted) ? json_array() : collect(cli, last, UINT32_MAX);
    }
    if (records == NULL && !atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    json_decref(records);
    return GB_CLI_INTERRUPTED;
}

int gb_cli_run_audit(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    unsigned long long most = o->given[GB_CLI_ID_limit] ? o->limit : o->since != NULL ? UINT32_MAX : RECORDS;
    json_t *records;

    (void)argc;
    (void)argv;
    if (o->follow && cli->host != NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--follow follows one daemon: it does not go with --hosts");
    if (most == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--limit must be at least 1");
    records = collect(cli, 0, most);
    if (o->follow)
        return follow(cli, records);
    if (records == NULL)
        return gb_cli_failed(cli);
    return gb_cli_show(cli, o->json ? records : turn(records), columns, COLUMNS);
}
