/* top: the statistics as a live table. A look that finds nothing new costs the daemon a 304. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/stats.h"

#define LOOK_MS 100
/* Transfers come in bursts: rates are over some seconds, whatever the interval is. */
#define WINDOW_S 10.0
#define APART_S 0.25 /* of looks that are kept */
#define KEPT 48

struct look {
    json_t *stats;
    double at;
};

struct top {
    struct gb_cli *cli;
    json_t *stats;
    json_t *sessions;
    double at;               /* when stats were taken */
    struct look looks[KEPT]; /* the oldest first, of which one at most is older than the window */
    unsigned kept;
    char etag[GPUBUF_ETAG_SIZE];
    bool reached;
};

void gb_cli_terminal_take(struct gb_cli *cli) {
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &cli->terminal) == 0) {
        raw = cli->terminal;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
    atomic_store(&cli->raw, true);
}

void gb_cli_terminal_give_back(struct gb_cli *cli) {
    static const char back[] = "\033[?25h\033[?1049l";

    if (!atomic_exchange(&cli->raw, false))
        return;
    if (write(STDOUT_FILENO, back, sizeof back - 1) > 0 && isatty(STDIN_FILENO))
        tcsetattr(STDIN_FILENO, TCSANOW, &cli->terminal);
}

static void forget_oldest(struct top *top) {
    json_decref(top->looks[0].stats);
    memmove(top->looks, top->looks + 1, --top->kept * sizeof(top->looks[0]));
}

static void keep(struct top *top) {
    const struct look *last = top->kept > 0 ? &top->looks[top->kept - 1] : NULL;

    /* Counters of another process say nothing of these. */
    if (last != NULL && strcmp(gb_cli_text(last->stats, "started_at"), gb_cli_text(top->stats, "started_at")) != 0) {
        while (top->kept > 0)
            forget_oldest(top);
        last = NULL;
    }
    while (top->kept > 1 && (top->kept == KEPT || top->at - top->looks[1].at >= WINDOW_S))
        forget_oldest(top);
    if (last == NULL || top->at - top->looks[top->kept - 1].at >= APART_S)
        top->looks[top->kept++] = (struct look){json_incref(top->stats), top->at};
}

/* Looks again. -1 with the error in cli. */
static int look(struct top *top) {
    char header[GPUBUF_ETAG_SIZE + 24];
    json_t *stats;

    snprintf(header, sizeof header, "If-None-Match: %s", top->etag);
    stats = gb_cli_request_with(top->cli, "GET", "/v1/stats", top->etag[0] != '\0' ? header : NULL, NULL);
    if (stats == NULL)
        return -1;
    top->reached = true;
    top->at = gb_cli_now();
    if (gpubuf_answer_of(top->cli->client)->status == 304) {
        json_decref(stats);
        keep(top);
        return 0;
    }
    memcpy(top->etag, gpubuf_answer_of(top->cli->client)->etag, sizeof top->etag);
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

    if (out == NULL)
        return NULL;
    fprintf(out, "gpubuf top  %s  every %s  q quits%s\n", gpubuf_url(top->cli->client),
            gb_cli_time_text(top->cli->options.interval, up), top->reached ? "" : "  NO ANSWER");
    gb_cli_stats_put(out, top->stats, top->looks[0].stats, top->at - top->looks[0].at, top->sessions);
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

    if (text == NULL)
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

/* Waits for the next look. True when it is time to leave. */
static bool rest(struct gb_cli *cli) {
    struct pollfd in = {.fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN};
    double end = gb_cli_now() + cli->options.interval;
    char key;

    while (!atomic_load(&cli->interrupted)) {
        double left_ms = (end - gb_cli_now()) * 1e3;

        if (left_ms <= 0)
            return false;
        if (poll(&in, 1, left_ms < LOOK_MS ? (int)left_ms + 1 : LOOK_MS) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
            return true;
    }
    return true;
}

static int once(struct top *top) {
    struct gb_cli *cli = top->cli;

    if (top->sessions == NULL)
        return gb_cli_failed(cli);
    if (cli->options.json)
        return gb_cli_show(cli, json_pack("{s:O, s:O}", "stats", top->stats, "sessions", top->sessions), NULL, 0);
    gb_cli_stats_put(stdout, top->stats, NULL, 0, top->sessions);
    return GB_CLI_DONE;
}

int gb_cli_run_top(struct gb_cli *cli, int argc, char **argv) {
    struct top top = {.cli = cli};
    int rc = GB_CLI_DONE;

    (void)argc;
    (void)argv;
    if (cli->options.interval <= 0)
        cli->options.interval = 1;
    if (look(&top) < 0) {
        rc = gb_cli_failed(cli);
    } else if (cli->options.once || cli->options.json || !isatty(STDOUT_FILENO)) {
        rc = once(&top);
    } else {
        gb_cli_terminal_take(cli);
        do {
            draw(&top);
            if (rest(cli))
                break;
            top.reached = look(&top) == 0;
        } while (!atomic_load(&cli->interrupted));
        gb_cli_terminal_give_back(cli);
        rc = atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : GB_CLI_DONE;
    }
    json_decref(top.stats);
    json_decref(top.sessions);
    while (top.kept > 0)
        forget_oldest(&top);
    return rc;
}
