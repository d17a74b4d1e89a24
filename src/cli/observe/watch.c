/* What happens at the daemon: statistics now, live (top) and over time, events (feed), the audit, and waiting for
 * something (sync, wait). What has no end of its own ends with an interrupt, which is no failure. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

#define COLUMNS_MAX 16 /* of a table */
#define SESSIONS_SHOWN 10
#define POOLS_SHOWN 10   /* of sessions, where sessions are to follow */
#define RATE_LEAST_S 5.0 /* over less than this, what comes in bursts has no rate */
#define POLL_MS 100
#define TYPE_WIDTH 16 /* the longest that is common */
#define PAGE_MAX 1000
#define RECORDS 100 /* the newest, without --limit and --since */
#define FOLLOW_MS 1000

/* --- statistics over time ----------------------------------------------------------------------------------------- */

/* Levels as they were at the end of a step, and what grew in it. Each history has some of these. */
static const struct gb_cli_column columns_history[] = {
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
_Static_assert(sizeof(columns_history) / sizeof(columns_history[0]) <= COLUMNS_MAX, "a table has no more columns");

static bool history_wanted(const struct gb_cli_options *o) {
    return o->since || o->until || o->given[GB_CLI_ID_step];
}

static int add_history(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    size_t n;

    if (!value)
        return 0;
    n = (size_t)snprintf(target + at, GB_CLI_PATH - at, "%c%s=", strchr(target, '?') ? '&' : '?', key);
    if (at + n >= GB_CLI_PATH || gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is too long", key);
    return 0;
}

/* Adds the period to the target of the statistics. -1 with cli->error set when it is too long. */
static int history_target(struct gb_cli *cli, char *target) {
    const struct gb_cli_options *o = &cli->options;
    char step[24];

    snprintf(step, sizeof(step), "%llu", (unsigned long long)o->step);
    if (add_history(cli, target, "since", o->since) < 0 || add_history(cli, target, "until", o->until) < 0)
        return -1;
    return add_history(cli, target, "step", o->given[GB_CLI_ID_step] ? step : NULL);
}

static bool some_has(json_t *items, const char *path) {
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item) {
        if (gb_cli_at(item, path))
            return true;
    }
    return false;
}

/* Prints a history: as JSON, or as a table of what it has. Takes it over. */
static int history_show(struct gb_cli *cli, json_t *history) {
    struct gb_cli_column had[COLUMNS_MAX];
    json_t *items = json_object_get(history, "items");
    size_t count = 0;
    size_t i;

    if (!history || cli->options.json)
        return gb_cli_show(cli, history, NULL, 0);
    for (i = 0; i < sizeof(columns_history) / sizeof(columns_history[0]); i++)
        if (i == 0 || some_has(items, columns_history[i].path))
            had[count++] = columns_history[i];
    gb_cli_table(stdout, had, count, items);
    if (!cli->options.quiet && gb_cli_text(history, "note")[0] != '\0') {
        fputs("gpubuf: ", stderr);
        gb_cli_put(stderr, gb_cli_text(history, "note"));
        fputs("\n", stderr);
    }
    json_decref(history);
    return GB_CLI_DONE;
}

/* --- stats -------------------------------------------------------------------------------------------------------- */

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

    if (own)
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

    return copies ? json_number_value(copies) : sum_of(counted, "count");
}

/* How long a transfer waited on the average behind earlier work, before its first byte was copied. */
static const char *each_text(json_t *counted, json_t *earlier, char text[32]) {
    double count = count_of(counted) - count_of(earlier);
    double waited_s = sum_of(counted, "seconds_queued") - sum_of(earlier, "seconds_queued");

    if (!json_object_get(counted, "seconds_queued") || count <= 0)
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

        snprintf(text, sizeof(text), "%.3f", sum_of(counted, "seconds_copying"));
        json_object_set_new(row, "copying", json_string(text));
        snprintf(text, sizeof(text), "%.3f", sum_of(counted, "seconds_queued"));
        json_object_set_new(row, "waiting", json_string(text));
        if (before) {
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
    if (json_object_get(stats, "sharing"))
        fprintf(out, "; leases: %.0f, %s held by them alone", gb_cli_number(stats, "sharing.leases"),
                gb_cli_bytes_text((uint64_t)gb_cli_number(stats, "sharing.held_bytes"), held));
    fprintf(out, "\nrunning: %.0f uploads, %.0f downloads, %.0f writes", gb_cli_number(stats, "running.uploads"),
            gb_cli_number(stats, "running.downloads"), gb_cli_number(stats, "running.writes"));
    fprintf(out, "; operations: %.0f queued, %.0f running; slots: %.0f of %.0f free",
            gb_cli_number(stats, "operations.queued"), gb_cli_number(stats, "operations.running"),
            gb_cli_number(stats, "slots.free"), gb_cli_number(stats, "slots.total"));
    fprintf(out, ", %.0f transfers wait for one\n\n", gb_cli_number(stats, "slots.waiting"));
}

/* Those with the most first, at most N of them. */
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

/* The devices' own, and of the sessions' all or at most N. A session's is named as in a buffer's address. */
static void put_pools(FILE *out, json_t *pools, size_t most, double omitted) {
    json_t *rows = json_array();
    json_t *owned = json_array();
    json_t *shown;
    json_t *pool;
    size_t i;

    json_array_foreach(pools, i, pool) {
        json_array_append(json_object_get(pool, "session") ? owned : rows, pool);
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
        gb_cli_table(out, pool_columns, sizeof(pool_columns) / sizeof(pool_columns[0]), rows);
    }
    if (omitted > 0)
        fprintf(out, "%.0f more of sessions\n", omitted);
    json_decref(shown);
    json_decref(owned);
    json_decref(rows);
}

/* before: an earlier sample, that many seconds old, for rates; none are printed below 5 s; NULL: no rates. sessions may
 * be NULL. */
static void stats_put(FILE *out, json_t *stats, json_t *before, double seconds, json_t *sessions) {
    json_t *rows = transfers(stats, before, seconds);
    json_t *top = sessions ? largest(sessions, "used_bytes", SESSIONS_SHOWN) : NULL;

    put_head(out, stats);
    gb_cli_table(out, transfer_columns,
                 sizeof(transfer_columns) / sizeof(transfer_columns[0]) - (!before ? LIVE_COLUMNS : 0), rows);
    put_pools(out, json_object_get(stats, "pools"), sessions ? POOLS_SHOWN : SIZE_MAX,
              gb_cli_number(stats, "pools_omitted"));
    if (top) {
        fputs("\n", out);
        gb_cli_table(out, session_columns, sizeof(session_columns) / sizeof(session_columns[0]), top);
    }
    json_decref(top);
    json_decref(rows);
}

static int target_of(struct gb_cli *cli, char *ret) {
    const struct gb_cli_options *o = &cli->options;

    if (o->pool)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/pools/{}/stats", cli->session, o->pool);
    if (o->device)
        return gb_cli_target(cli, ret, "/v1/devices/{}/stats", o->device);
    if (o->session)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/stats", cli->session);
    return gb_cli_target(cli, ret, "/v1/stats");
}

int gb_cli_run_stats(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    char target[GB_CLI_PATH];
    json_t *stats;

    (void)argc;
    (void)argv;
    if (o->device && (o->pool || o->session))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--device goes with no --pool and no --session: they are other things");
    if (target_of(cli, target) < 0 || history_target(cli, target) < 0)
        return gb_cli_failed(cli);
    stats = gb_cli_request(cli, "GET", target, NULL);
    if (history_wanted(o) && stats)
        return history_show(cli, stats);
    if (!stats || o->json || o->session || o->pool || o->device)
        return gb_cli_show(cli, stats, NULL, 0);
    stats_put(stdout, stats, NULL, 0, NULL);
    json_decref(stats);
    return GB_CLI_DONE;
}

/* --- top: the statistics as a live table. A poll that finds nothing new costs the daemon a 304 -------------------- */

/* Transfers come in bursts: rates are over some seconds, whatever the interval is. */
#define WINDOW_S 10.0
#define APART_S 0.25 /* of samples that are kept */
#define KEPT 48

struct sample {
    json_t *stats;
    double at;
};

struct top {
    struct gb_cli *cli;
    json_t *stats;
    json_t *sessions;
    double at;                   /* when stats were taken */
    struct sample samples[KEPT]; /* the oldest first, of which one at most is older than the window */
    unsigned kept;
    char etag[GPUBUF_ETAG_SIZE];
    bool reached;
};

static void forget_oldest(struct top *top) {
    json_decref(top->samples[0].stats);
    memmove(top->samples, top->samples + 1, --top->kept * sizeof(top->samples[0]));
}

static void keep(struct top *top) {
    const struct sample *last = top->kept > 0 ? &top->samples[top->kept - 1] : NULL;

    /* Counters of another process say nothing of these. */
    if (last && strcmp(gb_cli_text(last->stats, "started_at"), gb_cli_text(top->stats, "started_at")) != 0) {
        while (top->kept > 0)
            forget_oldest(top);
        last = NULL;
    }
    while (top->kept > 1 && (top->kept == KEPT || top->at - top->samples[1].at >= WINDOW_S))
        forget_oldest(top);
    if (!last || top->at - top->samples[top->kept - 1].at >= APART_S)
        top->samples[top->kept++] = (struct sample){json_incref(top->stats), top->at};
}

/* Looks again. -1 with the error in cli. */
static int poll_stats(struct top *top) {
    char header[GPUBUF_ETAG_SIZE + 24];
    json_t *stats;

    snprintf(header, sizeof(header), "If-None-Match: %s", top->etag);
    stats = gb_cli_request_with(top->cli, "GET", "/v1/stats", top->etag[0] != '\0' ? header : NULL, NULL);
    if (!stats)
        return -1;
    top->reached = true;
    top->at = gb_cli_now();
    if (gpubuf_answer_of(top->cli->client)->status == 304) {
        json_decref(stats);
        keep(top);
        return 0;
    }
    memcpy(top->etag, gpubuf_answer_of(top->cli->client)->etag, sizeof(top->etag));
    json_decref(top->stats);
    top->stats = stats;
    keep(top);
    json_decref(top->sessions);
    top->sessions = gb_cli_list(top->cli, "/v1/sessions");
    return 0;
}

/* The table as text, malloc'd. */
static char *paint(struct top *top, size_t *ret_size) {
    char up[24];
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_size);

    if (!out)
        return NULL;
    fprintf(out, "gpubuf top  %s  every %s  q quits%s\n", gpubuf_url(top->cli->client),
            gb_cli_time_text(top->cli->options.interval, up), top->reached ? "" : "  NO ANSWER");
    stats_put(out, top->stats, top->samples[0].stats, top->at - top->samples[0].at, top->sessions);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void draw(struct top *top) {
    struct winsize size = {0};
    size_t bytes;
    char *text = paint(top, &bytes);
    const char *line = text;
    unsigned row;

    if (!text)
        return;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    fputs("\033[H", stdout);
    for (row = 0; row + 1 < size.ws_row && *line != '\0'; row++) {
        size_t n = strcspn(line, "\n");

        printf("%.*s\033[K\r\n", (int)(n < size.ws_col ? n : size.ws_col), line);
        line += n + (line[n] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
    free(text);
}

/* Waits for the next poll. True when it is time to leave. */
static bool rest(struct gb_cli *cli) {
    struct pollfd in = {.fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN};
    double end = gb_cli_now() + cli->options.interval;
    char key;

    while (!atomic_load(&cli->interrupted)) {
        double left_ms = (end - gb_cli_now()) * 1e3;

        if (left_ms <= 0)
            return false;
        if (poll(&in, 1, left_ms < POLL_MS ? (int)left_ms + 1 : POLL_MS) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
            return true;
    }
    return true;
}

static int once(struct top *top) {
    struct gb_cli *cli = top->cli;

    if (!top->sessions)
        return gb_cli_failed(cli);
    if (cli->options.json)
        return gb_cli_show(cli, json_pack("{s:O, s:O}", "stats", top->stats, "sessions", top->sessions), NULL, 0);
    stats_put(stdout, top->stats, NULL, 0, top->sessions);
    return GB_CLI_DONE;
}

int gb_cli_run_top(struct gb_cli *cli, int argc, char **argv) {
    struct top top = {.cli = cli};
    int r = GB_CLI_DONE;

    (void)argc;
    (void)argv;
    if (cli->options.interval <= 0)
        cli->options.interval = 1;
    if (poll_stats(&top) < 0) {
        r = gb_cli_failed(cli);
    } else if (cli->options.once || cli->options.json || !isatty(STDOUT_FILENO)) {
        r = once(&top);
    } else {
        gb_cli_terminal_take(cli);
        do {
            draw(&top);
            if (rest(cli))
                break;
            top.reached = poll_stats(&top) == 0;
        } while (!atomic_load(&cli->interrupted));
        gb_cli_terminal_give_back(cli);
        r = atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : GB_CLI_DONE;
    }
    json_decref(top.stats);
    json_decref(top.sessions);
    while (top.kept > 0)
        forget_oldest(&top);
    return r;
}

/* --- feed: the events of the daemon, one a line ------------------------------------------------------------------- */

struct feed {
    struct gb_cli *cli;
    bool full;      /* as many as --limit says were printed */
    bool unread;    /* the reader of standard output has closed it */
    int failed;     /* errno of it, otherwise */
    uint64_t count; /* of the events that were printed */
    double lost_at; /* when the last connection ended */
};

/* Of a session alone, where --session asks for one: its events and those of none. */
static bool wanted(const struct gb_cli *cli, const struct gpubuf_news *news) {
    return !cli->options.session || news->session[0] == '\0' || strcmp(news->session, cli->session) == 0;
}

static void put_word(FILE *out, const char *before, const char *word) {
    if (word[0] == '\0')
        return;
    fputs(before, out);
    gb_cli_put(out, word);
}

/* What is counted: refusals, or the buffers that went with something. */
static void put_count(FILE *out, const struct gpubuf_news *news) {
    bool refused = strncmp(news->type, "memory.", 7) == 0 || strncmp(news->type, "quota.", 6) == 0;

    fprintf(out, "  %llu %s%s", (unsigned long long)news->count.value, refused ? "time" : "buffer",
            news->count.value == 1 ? "" : "s");
}

static void put_line(FILE *out, const struct gpubuf_news *news) {
    bool own_pool = news->buffer[0] == '\0' || strcmp(news->pool, "default") != 0;
    bool bare = news->session[0] == '\0' && news->device.index < 0 && news->detail[0] == '\0';
    size_t width = strlen(news->type);
    char bytes[24];

    fprintf(out, "%.10s %.8s  ", news->at, strlen(news->at) > 11 ? news->at + 11 : "");
    gb_cli_put(out, news->type);
    fprintf(out, "%*s", !bare && width < TYPE_WIDTH ? (int)(TYPE_WIDTH - width) : 0, "");
    put_word(out, "  ", news->session);
    put_word(out, "/", news->buffer);
    put_word(out, "  pool ", own_pool ? news->pool : "");
    if (news->device.index >= 0)
        fprintf(out, "  device %d", news->device.index);
    if (news->bytes.set)
        fprintf(out, "  %s", gb_cli_bytes_text(news->bytes.value, bytes));
    if (news->count.set)
        put_count(out, news);
    put_word(out, "  head ", news->head);
    put_word(out, "  lease ", news->lease);
    put_word(out, "  ", news->detail);
    putc('\n', out);
}

static int hear(void *arg, const struct gpubuf_news *news) {
    struct feed *feed = arg;

    if (!wanted(feed->cli, news))
        return 0;
    if (feed->cli->options.json)
        gb_cli_json_text(stdout, news->json);
    else
        put_line(stdout, news);
    feed->count++;
    feed->full = feed->cli->options.given[GB_CLI_ID_limit] && feed->count >= feed->cli->options.limit;
    if (fflush(stdout) == 0)
        return feed->full ? -1 : 0;
    feed->unread = errno == EPIPE;
    feed->failed = feed->unread ? 0 : errno;
    return -1;
}

/* A pipe without a reader shows before something is written to it. */
static int tick(void *arg) {
    struct feed *feed = arg;
    struct pollfd out = {.fd = STDOUT_FILENO};

    feed->unread = poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
    return feed->unread;
}

static int again(void *arg, bool stood, const struct gpubuf_error *why) {
    struct feed *feed = arg;
    struct gb_cli *cli = feed->cli;
    double now = gb_cli_now();

    if (stood)
        feed->lost_at = now;
    if (stood && !cli->options.quiet) {
        fputs("gpubuf: ", stderr);
        gb_cli_put(stderr, why->code == GPUBUF_OK ? "the daemon ended the feed" : why->detail);
        fputs("; it goes on when the daemon answers again\n", stderr);
    }
    if (cli->options.timeout <= 0 || now - feed->lost_at < cli->options.timeout)
        return 0;
    gb_cli_error(cli, GPUBUF_CLIENT_TIMEOUT, "the daemon did not answer again for %.0f s", now - feed->lost_at);
    return -1;
}

int gb_cli_run_feed(struct gb_cli *cli, int argc, char **argv) {
    struct feed feed = {.cli = cli};
    struct gpubuf_feed_params params = {.types = cli->options.type, .again = again, .tick = tick, .arg = &feed};
    struct gpubuf_error err;

    (void)argc;
    (void)argv;
    if (cli->host)
        return gb_cli_refused(cli, GB_CLI_USAGE, "feed follows one daemon: it does not go with --hosts");
    if (cli->options.given[GB_CLI_ID_limit] && cli->options.limit == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--limit is the number of events, 1 or more");
    params.after.set = cli->options.given[GB_CLI_ID_after];
    params.after.value = cli->options.after;
    if (gpubuf_feed_listen(cli->client, &params, hear, &err) < 0) {
        if (atomic_load(&cli->interrupted)) /* that is how it ends */
            return GB_CLI_INTERRUPTED;
        cli->error = err;
        return gb_cli_failed(cli);
    }
    if (feed.unread) /* nor is what the stream still holds wanted, which could not be written at the end */
        return freopen("/dev/null", "w", stdout) ? GB_CLI_DONE : GB_CLI_FAILED;
    if (feed.full)
        return GB_CLI_DONE;
    if (feed.failed != 0)
        return gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(feed.failed));
    return gb_cli_failed(cli);
}

/* --- audit: the records of the daemon's audit, oldest first ------------------------------------------------------- */

static const struct gb_cli_column columns_audit[] = {
    {"AT (UTC)", "at", GB_CLI_FORM_TIME},        {"EVENT", "event", GB_CLI_FORM_TEXT},
    {"ADDRESS", "address", GB_CLI_FORM_TEXT},    {"WHO", "who", GB_CLI_FORM_TEXT},
    {"METHOD", "method", GB_CLI_FORM_TEXT},      {"ROUTE", "route", GB_CLI_FORM_TEXT},
    {"SESSION", "session", GB_CLI_FORM_TEXT},    {"OBJECT", "object", GB_CLI_FORM_TEXT},
    {"STATUS", "status", GB_CLI_FORM_COUNT},     {"CODE", "code", GB_CLI_FORM_TEXT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},       {"COUNT", "count", GB_CLI_FORM_COUNT},
    {"REQUEST", "request_id", GB_CLI_FORM_TEXT},
};
#define COLUMNS (sizeof(columns_audit) / sizeof(columns_audit[0]))

/* A filter of the query, if it is given. */
static int add_audit(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    size_t n;

    if (!value)
        return 0;
    n = (size_t)snprintf(target + at, GB_CLI_PATH - at, "&%s=", key);
    if (at + n >= GB_CLI_PATH || gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s is too long", key);
    return 0;
}

static json_t *ask(struct gb_cli *cli, unsigned long long limit, const char *cursor) {
    const struct gb_cli_options *o = &cli->options;
    char target[GB_CLI_PATH];

    snprintf(target, sizeof(target), "/v1/audit?limit=%llu", limit < PAGE_MAX ? limit : PAGE_MAX);
    if (add_audit(cli, target, "since", o->since) < 0 || add_audit(cli, target, "until", o->until) < 0 ||
        add_audit(cli, target, "session", o->session) < 0 || add_audit(cli, target, "token", o->token) < 0 ||
        add_audit(cli, target, "status", o->status) < 0 ||
        add_audit(cli, target, "cursor", cursor[0] != '\0' ? cursor : NULL) < 0)
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

        if (!page) {
            json_decref(records);
            return NULL;
        }
        more = take(records, page, after_id, most);
        snprintf(cursor, sizeof(cursor), "%s", gb_cli_text(page, "next_cursor"));
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
        json_t *who = token ? token : json_object_get(row, "certificate");

        if (who)
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
            gb_cli_cell(row, &columns_audit[k], cell);
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

    while (records && !atomic_load(&cli->interrupted)) {
        if (json_array_size(records) > 0)
            last = (json_int_t)gb_cli_number(json_array_get(records, 0), "id");
        if (cli->options.json)
            put_lines(records);
        else
            put_rows(records);
        if (!pause_for_more(cli))
            return freopen("/dev/null", "w", stdout) ? GB_CLI_DONE : GB_CLI_FAILED;
        records = atomic_load(&cli->interrupted) ? json_array() : collect(cli, last, UINT32_MAX);
    }
    if (!records && !atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    json_decref(records);
    return GB_CLI_INTERRUPTED;
}

int gb_cli_run_audit(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    unsigned long long most = o->given[GB_CLI_ID_limit] ? o->limit : o->since ? UINT32_MAX : RECORDS;
    json_t *records;

    (void)argc;
    (void)argv;
    if (o->follow && cli->host)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--follow follows one daemon: it does not go with --hosts");
    if (most == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--limit must be at least 1");
    records = collect(cli, 0, most);
    if (o->follow)
        return follow(cli, records);
    if (!records)
        return gb_cli_failed(cli);
    return gb_cli_show(cli, o->json ? records : turn(records), columns_audit, COLUMNS);
}

/* --- sync and wait ------------------------------------------------------------------------------------------------ */

static int sync_side(struct gb_cli *cli, const char *text) {
    char target[GB_CLI_PATH];

    if (gb_cli_buffer_target(cli, text, "/sync", target) < 0)
        return gb_cli_failed(cli);
    return gb_cli_show_buffer(cli, gb_cli_post(cli, target, json_pack("{s:s}", "to", "device")));
}

static int sync_target(struct gb_cli *cli, char *ret) {
    const struct gb_cli_options *o = &cli->options;

    if (o->device)
        return gb_cli_target(cli, ret, "/v1/devices/{}/sync", o->device);
    if (o->stream)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/streams/{}/sync", cli->session, o->stream);
    return gb_cli_target(cli, ret, "/v1/sessions/{}/sync", cli->session);
}

int gb_cli_run_sync(struct gb_cli *cli, int argc, char **argv) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (cli->options.device && (argc > 0 || cli->options.stream))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--device syncs all of a device: it goes with no NAME and no --stream");
    if (argc > 0)
        return sync_side(cli, argv[0]);
    if (cli->options.to)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--to is the side of a mirrored buffer: gpubuf sync NAME --to SIDE");
    if (sync_target(cli, target) < 0)
        return gb_cli_failed(cli);
    answer = gb_cli_sync(cli, target);
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    json_decref(answer);
    return GB_CLI_DONE;
}

int gb_cli_run_wait(struct gb_cli *cli, int argc, char **argv) {
    const struct gpubuf_answer *answer;
    uint32_t timeout_s = (uint32_t)(cli->options.timeout + 0.999);

    (void)argc;
    if (gpubuf_operation_wait(cli->client, argv[0], timeout_s, &cli->error) < 0)
        return gb_cli_failed(cli);
    answer = gpubuf_answer_of(cli->client);
    return gb_cli_show(cli, json_loadb(answer->body, answer->bytes, 0, NULL), NULL, 0);
}
