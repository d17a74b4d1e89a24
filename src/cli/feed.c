/* feed: prints the events of the daemon, one a line, until an interrupt or as many as were asked for. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"

#define TYPE_WIDTH 16 /* the longest that is common */

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
    return cli->options.session == NULL || news->session[0] == '\0' || strcmp(news->session, cli->session) == 0;
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
    if (cli->host != NULL)
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
        return freopen("/dev/null", "w", stdout) != NULL ? GB_CLI_DONE : GB_CLI_FAILED;
    if (feed.full)
        return GB_CLI_DONE;
    if (feed.failed != 0)
        return gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(feed.failed));
    return gb_cli_failed(cli);
}
