#include "cli/stats.h"

#include <string.h>

#include "cli/history.h"

#define SESSIONS_SHOWN 10
#define POOLS_SHOWN 10   /* of sessions, where sessions are to follow */
#define RATE_LEAST_S 5.0 /* over less than this, what comes in bursts has no rate */

static const struct gb_cli_column transfer_columns[] = {
    {"", "what", GB_CLI_FORM_TEXT},
    {"COUNT", "count", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"COPYING (S)", "copying", GB_CLI_FORM_COUNT},
    {"WAITING (S)", "waiting", GB_CLI_FORM_COUNT},
    {"RATE", "rate", GB_CLI_FORM_COUNT},
    {"WAITING EACH", "each", GB_CLI_FORM_COUNT},
};
#define LIVE_COLUMNS 2 /* the last of them */
static const struct gb_cli_column pool_columns[] = {
    {"POOL", "name", GB_CLI_FORM_TEXT},
    {"DEVICE", "device.index", GB_CLI_FORM_COUNT},
    {"USED", "used_bytes", GB_CLI_FORM_BYTES},
    {"PEAK", "used_peak_bytes", GB_CLI_FORM_BYTES},
    {"RESERVED", "reserved_bytes", GB_CLI_FORM_BYTES},
    {"MAX", "max_bytes", GB_CLI_FORM_BYTES},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
};
static const struct gb_cli_column session_columns[] = {
    {"SESSION", "name", GB_CLI_FORM_TEXT},       {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"USED", "used_bytes", GB_CLI_FORM_BYTES},   {"PINNED", "used_pinned_bytes", GB_CLI_FORM_BYTES},
    {"QUOTA", "quota.bytes", GB_CLI_FORM_BYTES},
};

/* A sum over the ways or kinds that a transfer is counted by, or the number itself. */
static double sum_of(json_t *counted, const char *key) {
    json_t *own = json_object_get(counted, key);
    double sum = json_number_value(own);
    const char *name;
    json_t *member;

    if (own != NULL)
        return sum;
    json_object_foreach(counted, name, member) {
        if (json_is_object(member))
            sum += sum_of(member, key);
    }
    return sum;
}

static const char *rate_text(double bytes, double seconds, char text[32]) {
    char number[24];

    if (seconds < RATE_LEAST_S)
        return "-";
    snprintf(text, 32, "%s/s", gb_cli_bytes_text((uint64_t)(bytes > 0 ? bytes / seconds : 0), number));
    return text;
}

/* Fills and copies of mirrored buffers are counted otherwise. */
static double count_of(json_t *counted) {
    json_t *copies = json_object_get(counted, "copies");

    return copies != NULL ? json_number_value(copies) : sum_of(counted, "count");
}

/* How long a transfer waited on the average behind earlier work, before its first byte was copied. */
static const char *each_text(json_t *counted, json_t *earlier, char text[32]) {
    double count = count_of(counted) - count_of(earlier);
    double waited_s = sum_of(counted, "seconds_queued") - sum_of(earlier, "seconds_queued");

    if (json_object_get(counted, "seconds_queued") == NULL || count <= 0)
        return "-";
    snprintf(text, 32, "%.2f ms", waited_s > 0 ? waited_s * 1e3 / count : 0);
    return text;
}

static json_t *transfers(json_t *stats, json_t *before, double seconds) {
    json_t *rows = json_array();
    const char *name;
    json_t *counted;

    json_object_foreach(json_object_get(stats, "transfers"), name, counted) {
        json_t *earlier = json_object_get(json_object_get(before, "transfers"), name);
        double bytes = sum_of(counted, "bytes");
        json_t *row = json_pack("{s:s, s:I, s:I}", "what", name, "count", (json_int_t)count_of(counted), "bytes",
                                (json_int_t)bytes);
        char text[32];

        snprintf(text, sizeof text, "%.3f", sum_of(counted, "seconds_copying"));
        json_object_set_new(row, "copying", json_string(text));
        snprintf(text, sizeof text, "%.3f", sum_of(counted, "seconds_queued"));
        json_object_set_new(row, "waiting", json_string(text));
        if (before != NULL) {
            json_object_set_new(row, "rate", json_string(rate_text(bytes - sum_of(earlier, "bytes"), seconds, text)));
            json_object_set_new(row, "each", json_string(each_text(counted, earlier, text)));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void put_head(FILE *out, json_t *stats) {
    char bytes[24];
    char held[24];

    fprintf(out, "sessions: %.0f; buffers: %.0f of %s", gb_cli_number(stats, "sessions.count"),
            gb_cli_number(stats, "buffers.count"),
            gb_cli_bytes_text((uint64_t)gb_cli_number(stats, "buffers.bytes"), bytes));
    if (gb_cli_number(stats, "buffers.lost") > 0)
        fprintf(out, ", %.0f of them lost", gb_cli_number(stats, "buffers.lost"));
    if (gb_cli_number(stats, "buffers.stored") > 0)
        fprintf(out, ", %.0f of them on disk alone", gb_cli_number(stats, "buffers.stored"));
    if (gb_cli_number(stats, "buffers.mirrored.count") > 0)
        fprintf(out, ", %.0f of them mirrored with %s", gb_cli_number(stats, "buffers.mirrored.count"),
                gb_cli_bytes_text((uint64_t)gb_cli_number(stats, "buffers.mirrored.bytes"), held));
    if (json_object_get(stats, "sharing") != NULL)
        fprintf(out, "; leases: %.0f, %s held by them alone", gb_cli_number(stats, "sharing.leases"),
                gb_cli_bytes_text((uint64_t)gb_cli_number(stats, "sharing.held_bytes"), held));
    fprintf(out, "\nrunning: %.0f uploads, %.0f downloads, %.0f writes", gb_cli_number(stats, "running.uploads"),
            gb_cli_number(stats, "running.downloads"), gb_cli_number(stats, "running.writes"));
    fprintf(out, "; operations: %.0f queued, %.0f running; slots: %.0f of %.0f free",
            gb_cli_number(stats, "operations.queued"), gb_cli_number(stats, "operations.running"),
            gb_cli_number(stats, "slots.free"), gb_cli_number(stats, "slots.total"));
    fprintf(out, ", %.0f transfers wait for one\n\n", gb_cli_number(stats, "slots.waiting"));
}

/* Those with the most first, at most so many. */
static json_t *largest(json_t *items, const char *key, size_t most) {
    json_t *left = json_copy(items);
    json_t *picked = json_array();

    while (json_array_size(left) > 0 && json_array_size(picked) < most) {
        size_t best = 0;
        size_t i;

        for (i = 1; i < json_array_size(left); i++)
            if (gb_cli_number(json_array_get(left, i), key) > gb_cli_number(json_array_get(left, best), key))
                best = i;
        json_array_append(picked, json_array_get(left, best));
        json_array_remove(left, best);
    }
    json_decref(left);
    return picked;
}

/* The devices' own, and of the sessions' all or at most so many. A session's is named as in a buffer's address. */
static void put_pools(FILE *out, json_t *pools, size_t most, double omitted) {
    json_t *rows = json_array();
    json_t *owned = json_array();
    json_t *shown;
    json_t *pool;
    size_t i;

    json_array_foreach(pools, i, pool) {
        json_array_append(json_object_get(pool, "session") != NULL ? owned : rows, pool);
    }
    shown = json_array_size(owned) > most ? largest(owned, "reserved_bytes", most) : json_incref(owned);
    omitted += (double)(json_array_size(owned) - json_array_size(shown));
    json_array_foreach(shown, i, pool) {
        json_t *row = json_copy(pool);

        json_object_set_new(row, "name",
                            json_sprintf("%s/%s", gb_cli_text(pool, "session"), gb_cli_text(pool, "name")));
        json_array_append_new(rows, row);
    }
    if (json_array_size(rows) > 0) {
        fputs("\n", out);
        gb_cli_table(out, pool_columns, sizeof pool_columns / sizeof pool_columns[0], rows);
    }
    if (omitted > 0)
        fprintf(out, "%.0f more of sessions\n", omitted);
    json_decref(shown);
    json_decref(owned);
    json_decref(rows);
}

void gb_cli_stats_put(FILE *out, json_t *stats, json_t *before, double seconds, json_t *sessions) {
    json_t *rows = transfers(stats, before, seconds);
    json_t *top = sessions != NULL ? largest(sessions, "used_bytes", SESSIONS_SHOWN) : NULL;

    put_head(out, stats);
    gb_cli_table(out, transfer_columns,
                 sizeof transfer_columns / sizeof transfer_columns[0] - (before == NULL ? LIVE_COLUMNS : 0), rows);
    put_pools(out, json_object_get(stats, "pools"), sessions != NULL ? POOLS_SHOWN : SIZE_MAX,
              gb_cli_number(stats, "pools_omitted"));
    if (top != NULL) {
        fputs("\n", out);
        gb_cli_table(out, session_columns, sizeof session_columns / sizeof session_columns[0], top);
    }
    json_decref(top);
    json_decref(rows);
}

static int target_of(struct gb_cli *cli, char *ret) {
    const struct gb_cli_options *o = &cli->options;

    if (o->pool != NULL)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/pools/{}/stats", cli->session, o->pool);
    if (o->device != NULL)
        return gb_cli_target(cli, ret, "/v1/devices/{}/stats", o->device);
    if (o->session != NULL)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/stats", cli->session);
    return gb_cli_target(cli, ret, "/v1/stats");
}

int gb_cli_run_stats(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    char target[GB_CLI_PATH];
    json_t *stats;

    (void)argc;
    (void)argv;
    if (o->device != NULL && (o->pool != NULL || o->session != NULL))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--device goes with no --pool and no --session: they are other things");
    if (target_of(cli, target) < 0 || gb_cli_history_target(cli, target) < 0)
        return gb_cli_failed(cli);
    stats = gb_cli_request(cli, "GET", target, NULL);
    if (gb_cli_history_wanted(o) && stats != NULL)
        return gb_cli_history_show(cli, stats);
    if (stats == NULL || o->json || o->session != NULL || o->pool != NULL || o->device != NULL)
        return gb_cli_show(cli, stats, NULL, 0);
    gb_cli_stats_put(stdout, stats, NULL, 0, NULL);
    json_decref(stats);
    return GB_CLI_DONE;
}
