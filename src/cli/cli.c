/* One run of a command: its token, its session, the node of a fleet that it asks, its client and its signals; what
 * it says when it fails, and the hint on what to do then. main() runs one; hosts.c one in each of its processes.
 * cli->error is printed in one place, gb_cli_failed(). */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define TOKEN_BYTES 4096
#define NODE_S 3    /* with one node of a fleet, before the next is asked */
#define POLL_MS 100 /* a pause is left so often to see whether an interrupt came */

/* --- errors and targets ------------------------------------------------------------------------------------------- */

int gb_cli_error(struct gb_cli *cli, int code, const char *format, ...) {
    va_list args;

    memset(&cli->error, 0, sizeof(cli->error));
    cli->error.code = code;
    snprintf(cli->error.slug, sizeof(cli->error.slug), "%s", gpubuf_code_slug(code));
    va_start(args, format);
    vsnprintf(cli->error.detail, sizeof(cli->error.detail), format, args);
    va_end(args);
    return -1;
}

int gb_cli_target(struct gb_cli *cli, char *ret, const char *format, ...) {
    size_t at = 0;
    va_list args;
    int r = 0;

    va_start(args, format);
    while (*format != '\0' && r == 0 && at + 1 < GB_CLI_PATH) {
        if (format[0] == '{' && format[1] == '}') {
            r = gpubuf_escape(va_arg(args, const char *), ret + at, GB_CLI_PATH - at);
            at += r == 0 ? strlen(ret + at) : 0;
            format += 2;
        } else {
            ret[at++] = *format++;
        }
    }
    va_end(args);
    if (r < 0 || *format != '\0')
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "a name is too long for a request");
    ret[at] = '\0';
    return 0;
}

/* --- what to do about an error: conditions ------------------------------------------------------------------------ */

static bool token_given(const struct gb_cli *cli, json_t *problem) {
    const char *environment = getenv("GPUBUF_TOKEN");

    (void)problem;
    return cli->token ? cli->token[0] != '\0' : environment && environment[0] != '\0';
}

/* Too many requests of the address had a token that is not known. */
static bool barred(const struct gb_cli *cli, json_t *problem) {
    (void)cli;
    return strcmp(gb_cli_text(problem, "limit.name"), "failures") == 0;
}

/* Room that will never be there is not made by trimming. */
static bool may_pass(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return cli->error.retryable;
}

/* A path that the user wrote says nothing of versions. */
static bool own_path(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "call") != 0;
}

static bool of_etcd(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return cli->options.etcd != NULL;
}

/* The owner of the session had been found, and does not answer. */
static bool of_owner(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return gb_cli_is_of_owner(cli);
}

/* Nothing says where the fleet is. */
static bool of_no_node(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "fleet") == 0 && !cli->node && !cli->options.url && !getenv("GPUBUF_URL");
}

static bool of_fleet(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "fleet") == 0 || cli->node;
}

/* A proxy may have gpubufd below a path; the daemon itself has nothing there. */
static bool of_path(const struct gb_cli *cli, json_t *problem) {
    const char *url = gpubuf_url(cli->client);
    const char *host = strstr(url, "://");
    const char *path = host && strncmp(url, "http", 4) == 0 ? strchr(host + 3, '/') : NULL;

    (void)problem;
    return path && path[strspn(path, "/")] != '\0';
}

/* Files of these endings are put under names without them; ".index" and ".00001" are of names. */
static const char *const endings[] = {"npy", "npz", "safetensors", "bin", "raw",  "dat", "txt",
                                      "pt",  "pth", "pkl",         "csv", "json", "gguf"};

/* The name that is missed could be that of a file, with its ending: session "s" has no buffer named "x.npy". */
static bool of_ending(const struct gb_cli *cli, json_t *problem) {
    const char *named = strstr(cli->error.detail, " named \"");
    const char *dot = named ? strrchr(named, '.') : NULL;
    size_t n = dot ? strcspn(dot + 1, "\"") : 0;
    bool is = false;
    size_t i;

    (void)problem;
    for (i = 0; i < sizeof(endings) / sizeof(endings[0]) && dot && dot[1 + n] == '"'; i++)
        is |= strlen(endings[i]) == n && strncmp(dot + 1, endings[i], n) == 0;
    return is;
}

/* Whether a source answered 401 or 403. before: what stands before its status. */
static bool denies(const struct gb_cli *cli, const char *before) {
    const char *at = strstr(cli->error.detail, before);

    at = at ? at + strlen(before) : "";
    return strncmp(at, "401", 3) == 0 || strncmp(at, "403", 3) == 0;
}

static bool server_denies(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return denies(cli, " answers with ");
}

/* "the source http://host:7070 answers GET with 401" */
static bool daemon_denies(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return denies(cli, " answers GET with ") || denies(cli, " answers HEAD with ");
}

/* daemon:PATH, and what lies there is a folder. */
static bool of_folder(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strstr(cli->error.detail, "is not a regular file") != NULL;
}

static bool of_copy(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "cp") == 0;
}

/* What a file is was taken from its ending or its first bytes, and an option says otherwise. */
static bool by_ending(const struct gb_cli *cli, json_t *problem) {
    const char *command = cli->command->name;

    (void)problem;
    return !cli->options.raw && (strcmp(command, "put") == 0 || strcmp(command, "cp") == 0);
}

/* One buffer refuses the whole, which an option changes. */
static bool of_checkpoint(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "checkpoints") == 0 && !cli->options.lenient;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define ALWAYS NULL
#define TOKEN_GIVEN token_given
#define BARRED barred
#define MAY_PASS may_pass
#define OWN_PATH own_path
#define OF_ETCD of_etcd
#define OF_OWNER of_owner
#define OF_NO_NODE of_no_node
#define OF_FLEET of_fleet
#define OF_COPY of_copy
#define OF_FOLDER of_folder
#define OF_PATH of_path
#define OF_ENDING of_ending
#define SERVER_DENIES server_denies
#define DAEMON_DENIES daemon_denies
#define BY_ENDING by_ending
#define OF_CHECKPOINT of_checkpoint

static const struct {
    int code;
    bool (*when)(const struct gb_cli *cli, json_t *problem);
    const char *text;
} hints[] = {
#define GB_CLI_HINT(code, when, text) {GPUBUF_##code, when, text},
#include "cli/hints.def"
#undef GB_CLI_HINT
};

/* Whether it is the problem of cli->error, and not of an earlier or later request. */
static bool is_of_error(const struct gb_cli *cli, json_t *problem) {
    return json_is_object(problem) && strcmp(gb_cli_text(problem, "code"), cli->error.slug) == 0 &&
           strncmp(gb_cli_text(problem, "detail"), cli->error.detail, strlen(cli->error.detail)) == 0;
}

json_t *gb_cli_problem(const struct gb_cli *cli) {
    const struct gpubuf_answer *answer = cli->client ? gpubuf_answer_of(cli->client) : NULL;
    json_t *problem = NULL;

    if (cli->error.status >= 400 && answer && answer->body)
        problem = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (is_of_error(cli, problem))
        return problem;
    json_decref(problem);
    if (is_of_error(cli, cli->problem))
        return json_incref(cli->problem);
    return json_pack("{s:s, s:s, s:b, s:i}", "code", cli->error.slug, "detail", cli->error.detail, "retryable",
                     cli->error.retryable, "status", cli->error.status);
}

void gb_cli_keep_problem(struct gb_cli *cli) {
    json_t *problem = gb_cli_problem(cli);

    json_decref(cli->problem);
    cli->problem = problem;
}

const char *gb_cli_hint(const struct gb_cli *cli) {
    json_t *problem = gb_cli_problem(cli);
    const char *found = NULL;
    size_t i;

    for (i = 0; i < sizeof(hints) / sizeof(hints[0]) && !found; i++)
        if (hints[i].code == cli->error.code && (!hints[i].when || hints[i].when(cli, problem)))
            found = hints[i].text;
    json_decref(problem);
    return found;
}

/* --- the terminal ------------------------------------------------------------------------------------------------- */

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
    if (write(STDOUT_FILENO, back, sizeof(back) - 1) > 0 && isatty(STDIN_FILENO))
        tcsetattr(STDIN_FILENO, TCSANOW, &cli->terminal);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

void gb_cli_signals_fatal(sigset_t *ret) {
    struct sigaction hangup;

    sigemptyset(ret);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGTERM);
    /* nohup(1) has it ignored; one that is waited for comes all the same. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(ret, SIGHUP);
}

static void set_of(sigset_t *set) {
    gb_cli_signals_fatal(set);
    sigaddset(set, SIGUSR2); /* ours: the end of the thread */
}

static void *watch(void *arg) {
    struct gb_cli_signals *signals = arg;
    struct gb_cli *cli = signals->cli;
    sigset_t set;
    int number;

    set_of(&set);
    for (;;) {
        if (sigwait(&set, &number) != 0)
            continue;
        if (number == SIGUSR2)
            return NULL;
        if (atomic_exchange(&cli->interrupted, number) != 0) {
            gb_cli_terminal_give_back(cli);
            _exit(gb_cli_end_of(cli, GB_CLI_INTERRUPTED));
        }
        gpubuf_interrupt(cli->client);
    }
}

void gb_cli_signals_block(void) {
    sigset_t set;

    set_of(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Starts the thread that waits for them; all other threads started from now on have them blocked. -1 with errno. */
static int signals_begin(struct gb_cli_signals *signals, struct gb_cli *cli) {
    sigset_t set;
    int r;

    signals->cli = cli;
    set_of(&set);
    pthread_sigmask(SIG_BLOCK, &set, &signals->before);
    signal(SIGPIPE, SIG_IGN); /* a reader that has left shows as EPIPE */
    r = pthread_create(&signals->thread, NULL, watch, signals);
    if (r != 0) {
        pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
        errno = r;
        return -1;
    }
    return 0;
}

static void signals_end(struct gb_cli_signals *signals) {
    pthread_kill(signals->thread, SIGUSR2);
    pthread_join(signals->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

/* --- the node of a fleet that a command asks ---------------------------------------------------------------------- */

static bool is_silent(const struct gpubuf_error *err) {
    return err->code == GPUBUF_CANNOT_CONNECT || err->code == GPUBUF_CONNECTION_LOST ||
           err->code == GPUBUF_CLIENT_TIMEOUT || err->code == GPUBUF_TLS_FAILED;
}

int gb_cli_fleet_open(struct gb_cli *cli, const char *url, gpubuf_client **ret) {
    double usual = cli->options.timeout;
    int r;

    if (usual <= 0 || usual > NODE_S)
        cli->options.timeout = NODE_S;
    r = gb_cli_open(cli, url, NULL, ret);
    cli->options.timeout = usual;
    return r;
}

/* Whether the daemon there answers this client: a token of one node need not be known to another, and then the way by
 * the first node's redirects, with tickets, is the one that works. */
static bool lets_in(struct gb_cli *cli, const char *url) {
    struct gpubuf_error err;
    gpubuf_client *client;
    bool in;

    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return false;
    in = gpubuf_request(client, "HEAD", "/v1", NULL, NULL, 0, &err) == 0;
    gpubuf_close(client);
    return in;
}

/* "http://host:7070/prefix" of "http://host:7070/prefix/v1/sessions/s". */
static void read_owner(json_t *found, struct gb_cli_owner *ret) {
    const char *url = gb_cli_text(found, "url");
    const char *path = strstr(url, "/v1/sessions/");

    snprintf(ret->node, sizeof(ret->node), "%s", gb_cli_text(found, "node"));
    snprintf(ret->url, sizeof(ret->url), "%.*s", (int)(path ? (size_t)(path - url) : strlen(url)), url);
    ret->epoch = (uint64_t)json_integer_value(json_object_get(found, "epoch"));
}

/* Asks for the owner of the command's session. *ret_alive: it has an address and is alive. 0, or -1 with err. */
static int find_owner(struct gb_cli *cli, gpubuf_client *client, bool *ret_alive, struct gpubuf_error *err) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(client);
    char target[GB_CLI_PATH];
    json_t *found;

    if (gb_cli_target(cli, target, "/v1/fleet/sessions/{}", cli->session) < 0) {
        *err = cli->error;
        return -1;
    }
    if (gpubuf_request(client, "GET", target, NULL, NULL, 0, err) < 0)
        return -1;
    found = json_loadb(answer->body, answer->bytes, 0, NULL);
    read_owner(found, &cli->owner);
    *ret_alive = json_is_true(json_object_get(found, "owner_alive")) && cli->owner.url[0] != '\0';
    json_decref(found);
    return 0;
}

/* 1: it answers; *ret_owner is a URL to be freed, or NULL. 0: it does not. -1 with cli->error. */
static int ask(struct gb_cli *cli, const char *url, char **ret_owner) {
    bool named = strcmp(cli->session, "default") != 0 && strcmp(cli->command->name, "fleet") != 0;
    struct gpubuf_error err;
    gpubuf_client *client;
    bool alive = false;
    int r;

    *ret_owner = NULL;
    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return -1;
    if (named)
        r = find_owner(cli, client, &alive, &err);
    else
        r = gpubuf_request(client, "GET", "/livez", NULL, NULL, 0, &err);
    if (alive)
        *ret_owner = strdup(cli->owner.url);
    gpubuf_close(client);
    return r == 0 || !is_silent(&err);
}

static int choose_node(struct gb_cli *cli, const char *url, char *owner) {
    bool straight = owner && lets_in(cli, owner);

    free(cli->node);
    cli->node = straight ? owner : strdup(url);
    if (!straight)
        free(owner);
    return cli->node ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
}

static int choose(struct gb_cli *cli, char *list) {
    char *rest = list;
    char *first = NULL;
    char *url;

    while ((url = strsep(&rest, ", "))) {
        char *owner;
        int r;

        if (url[0] == '\0')
            continue;
        r = ask(cli, url, &owner);
        if (r != 0)
            return r < 0 ? -1 : choose_node(cli, url, owner);
        if (!first)
            first = url;
    }
    return first ? choose_node(cli, first, NULL) : 0;
}

/* Of GPUBUF_FLEET, "URL,URL,...": sets cli->node to the owner of the command's session if that takes the token, else
 * to the first node that answers, else to the first; leaves it if there is no GPUBUF_FLEET, or if the command names a
 * daemon. 0, or -1 with cli->error: an address is malformed. */
static int fleet_choose(struct gb_cli *cli) {
    const char *list = getenv("GPUBUF_FLEET");
    char *copy;
    int r;

    if (!list || list[0] == '\0' || cli->options.url || cli->options.socket || cli->options.etcd)
        return 0;
    copy = strdup(list);
    if (!copy)
        return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    r = choose(cli, copy);
    free(copy);
    return r;
}

/* --- a run of a command ------------------------------------------------------------------------------------------- */

int gb_cli_status_of(const struct gpubuf_error *err) {
    switch (err->code) {
    case GPUBUF_CANNOT_CONNECT:
    case GPUBUF_CONNECTION_LOST:
    case GPUBUF_CLIENT_TIMEOUT:
    case GPUBUF_TLS_FAILED:
        return GB_CLI_UNREACHABLE;
    case GPUBUF_BAD_ARGUMENT:
        return GB_CLI_USAGE;
    case GPUBUF_INTERRUPTED:
        return GB_CLI_INTERRUPTED;
    default:
        return err->status == 404 && err->code != GPUBUF_NO_ROUTE ? GB_CLI_NOT_FOUND : GB_CLI_FAILED;
    }
}

static void put_holders(json_t *problem) {
    json_t *holders = json_object_get(problem, "holders");
    json_t *holder;
    size_t i;

    json_array_foreach(holders, i, holder) {
        bool exported = gb_cli_number(holder, "pid") == 0;

        fputs("gpubuf: lease ", stderr);
        gb_cli_put(stderr, gb_cli_text(holder, "lease"));
        if (exported)
            fputs(" is an export made at ", stderr);
        else
            fprintf(stderr, " is held by process %.0f of user %.0f since ", gb_cli_number(holder, "pid"),
                    gb_cli_number(holder, "uid"));
        gb_cli_put(stderr, gb_cli_text(holder, "since"));
        fputs(exported ? ": \"gpubuf leases rm\" ends it, once no process uses the handle\n" : "\n", stderr);
    }
}

/* Whether what was broken off has no effect: a transfer that does not write where the bytes stand. */
static bool left_nothing(const struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;

    return gb_cli_has_word("put get cp", cli->command->name) && !o->in_place && !o->given[GB_CLI_ID_offset] &&
           !o->slice;
}

bool gb_cli_is_of_owner(const struct gb_cli *cli) {
    const char *url = cli->owner.url;

    return cli->error.code == GPUBUF_CANNOT_CONNECT && url[0] != '\0' && strstr(cli->error.detail, url);
}

static void put_native(const struct gpubuf_error *err) {
    fputs(" (", stderr);
    gb_cli_put(stderr, err->native_call);
    fputs(", ", stderr);
    gb_cli_put(stderr, err->native_name);
    if (err->native_message[0] != '\0' && !strstr(err->detail, err->native_message)) {
        fputs(": ", stderr);
        gb_cli_put(stderr, err->native_message);
    }
    fputs(")", stderr);
}

/* Which of several it is, unless the detail says it. */
static void put_about(const struct gb_cli *cli, const struct gpubuf_error *err) {
    char quoted[GPUBUF_NAME_SIZE + 2];

    if (!cli->about)
        return;
    snprintf(quoted, sizeof(quoted), "\"%s\"", cli->about);
    if (strstr(err->detail, quoted) || strncmp(err->detail, cli->about, strlen(cli->about)) == 0)
        return;
    gb_cli_put(stderr, cli->about);
    fputs(": ", stderr);
}

/* A user of a fleet knows the session and the node, not the address. */
static void put_owner(const struct gb_cli *cli) {
    if (!gb_cli_is_of_owner(cli))
        return;
    fputs("session \"", stderr);
    gb_cli_put(stderr, cli->session);
    fputs("\" is at node \"", stderr);
    gb_cli_put(stderr, cli->owner.node);
    fputs("\": ", stderr);
}

/* The daemon's sentences name its parameters, where this program has options. */
static const struct {
    const char *daemon;
    const char *here;
} said[] = {
#define GB_CLI_SAID(daemon, here) {daemon, here},
#include "cli/said.def"
#undef GB_CLI_SAID
};

static void put_detail(const struct gb_cli *cli, const char *detail) {
    bool own = cli->command && strcmp(cli->command->name, "call") != 0;
    char text[2 * sizeof(cli->error.detail)];
    size_t n = 0;

    while (*detail != '\0' && n + 1 < sizeof(text)) {
        const char *here = NULL;
        size_t i;

        for (i = 0; i < sizeof(said) / sizeof(said[0]) && own && !here; i++)
            if (strncmp(detail, said[i].daemon, strlen(said[i].daemon)) == 0) {
                here = said[i].here;
                detail += strlen(said[i].daemon);
            }
        if (!here)
            text[n++] = *detail++;
        while (here && *here != '\0' && n + 1 < sizeof(text))
            text[n++] = *here++;
    }
    text[n] = '\0';
    gb_cli_put(stderr, text);
}

int gb_cli_failed(struct gb_cli *cli) {
    struct gpubuf_error *err = &cli->error;
    const char *hint = gb_cli_hint(cli);
    json_t *problem;

    if (err->code == GPUBUF_INTERRUPTED || atomic_load(&cli->interrupted)) {
        fprintf(stderr, "gpubuf: interrupted%s\n", left_nothing(cli) ? "; nothing is half-done" : "");
        return GB_CLI_INTERRUPTED;
    }
    if (err->code == GPUBUF_OUTPUT_FAILED && err->native_code == EPIPE)
        return GB_CLI_UNREAD;
    problem = gb_cli_problem(cli);
    if (cli->options.json)
        gb_cli_json(stdout, json_object_size(problem) > 0 ? problem : json_null());
    fputs("gpubuf: ", stderr);
    put_owner(cli);
    put_about(cli, err);
    put_detail(cli, err->detail[0] != '\0' ? err->detail : err->title);
    if (err->native_name[0] != '\0')
        put_native(err);
    fputs("\n", stderr);
    put_holders(problem);
    if (hint)
        fprintf(stderr, "gpubuf: %s\n", hint);
    json_decref(problem);
    return gb_cli_status_of(err);
}

int gb_cli_refused(struct gb_cli *cli, int status, const char *format, ...) {
    va_list args;

    memset(&cli->error, 0, sizeof(cli->error));
    cli->error.code = status == GB_CLI_USAGE ? GPUBUF_BAD_ARGUMENT : GPUBUF_INPUT_FAILED;
    snprintf(cli->error.slug, sizeof(cli->error.slug), "%s", gpubuf_code_slug(cli->error.code));
    va_start(args, format);
    vsnprintf(cli->error.detail, sizeof(cli->error.detail), format, args);
    va_end(args);
    return gb_cli_failed(cli) == GB_CLI_INTERRUPTED ? GB_CLI_INTERRUPTED : status;
}

char *gb_cli_read_token(const char *path, const char **ret_why) {
    char text[TOKEN_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TOKEN_BYTES);
    const char *mark;
    char *token = NULL;

    if (n > 0)
        text[n] = '\0';
    mark = n > 0 ? gb_conf_mark(text) : NULL;
    if (n > 0 && !mark) {
        token = strndup(text, strcspn(text, " \t\r\n"));
    }
    if (!token)
        *ret_why = mark ? mark : n == 0 ? "the file is empty" : strerror(errno);
    if (fd >= 0)
        close(fd);
    return token;
}

static int read_token(struct gb_cli *cli) {
    const char *why;

    if (!cli->options.token_file && cli->secret) {
        cli->token = strdup(cli->secret);
        return cli->token ? 0 : gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    }
    if (!cli->options.token_file)
        return 0;
    cli->token = gb_cli_read_token(cli->options.token_file, &why);
    if (!cli->token && strncmp(cli->options.token_file, "gpb_", 4) == 0)
        return gb_cli_refused(
            cli, GB_CLI_USAGE,
            "--token-file takes the name of a file, not the token, which other users of this machine "
            "can see among the arguments: revoke it, and give its successor in a file or GPUBUF_TOKEN");
    return cli->token ? 0 : gb_cli_refused(cli, GB_CLI_USAGE, "--token-file %s: %s", cli->options.token_file, why);
}

static void trace(void *arg, const char *line) {
    (void)arg;
    flockfile(stderr); /* several threads may trace */
    fputs(GB_CLI_TRACE, stderr);
    gb_cli_put(stderr, line);
    fputs("\n", stderr);
    funlockfile(stderr);
}

int gb_cli_open(struct gb_cli *cli, const char *url, const char *socket, gpubuf_client **ret) {
    struct gpubuf_options options = {0};

    options.url = url ? url : cli->options.url ? cli->options.url : cli->node;
    options.socket = socket ? socket : cli->options.socket;
    options.token = cli->token;
    options.cacert = cli->options.cacert;
    options.cert = cli->options.cert;
    options.key = cli->options.key;
    if (cli->options.given[GB_CLI_ID_retry])
        options.retries = cli->options.retry == 0          ? UINT32_MAX
                          : cli->options.retry < INT32_MAX ? (uint32_t)cli->options.retry
                                                           : INT32_MAX;
    options.plain_token = cli->options.plain_token;
    if (cli->options.timeout > 0)
        options.answer_timeout_s = options.stall_timeout_s = options.connect_timeout_s =
            (uint32_t)(cli->options.timeout + 0.999);
    if (cli->options.verbose)
        options.trace = trace;
    options.user_agent = "gpubuf/" GB_CLI_VERSION;
    return gpubuf_open(&options, ret, &cli->error);
}

int gb_cli_end_of(const struct gb_cli *cli, int status) {
    int number = atomic_load(&cli->interrupted);

    return status == GB_CLI_INTERRUPTED && number > 0 ? 128 + number : status;
}

/* A reader of a pipe that goes away ends cat without a word: it had what it wanted. */
int gb_cli_flush(struct gb_cli *cli, int status) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    int error = errno;

    if (!failed || status != GB_CLI_DONE)
        return status;
    if (error == EPIPE || (poll(&out, 1, 0) > 0 && (out.revents & POLLERR)))
        return GB_CLI_UNREAD;
    return gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(error));
}

/* Opens a client of the node that was chosen. */
static int open_chosen(struct gb_cli *cli) {
    gpubuf_client *client;

    if (gb_cli_open(cli, NULL, NULL, &client) < 0)
        return -1;
    if (cli->node && cli->owner.node[0] != '\0') /* an owner that this one followed is to refuse */
        gpubuf_fleet_expect(client, cli->session, cli->owner.epoch);
    cli->opened[cli->opened[0] != NULL] = client;
    cli->client = client;
    if (atomic_load(&cli->interrupted)) /* it was set in the former one */
        gpubuf_interrupt(client);
    return 0;
}

bool gb_cli_again(struct gb_cli *cli) {
    struct gpubuf_error told = cli->error;

    if (told.code != GPUBUF_SUPERSEDED || !cli->node || cli->again || cli->client != cli->opened[0])
        return false;
    cli->again = true; /* the first one stays open: the thread of signals may be using it */
    if (cli->options.verbose)
        trace(NULL, "the session has another owner: the fleet is asked again");
    if (fleet_choose(cli) == 0 && open_chosen(cli) == 0)
        return true;
    cli->error = told;
    return false;
}

bool gb_cli_pause(struct gb_cli *cli, double seconds) {
    double until = gb_cli_now() + seconds;

    while (atomic_load(&cli->interrupted) == 0 && gb_cli_now() < until)
        poll(NULL, 0, POLL_MS);
    return atomic_load(&cli->interrupted) == 0;
}

int gb_cli_begin(struct gb_cli *cli) {
    int r = read_token(cli);

    if (r != 0)
        return r;
    cli->session = cli->options.session ? cli->options.session : cli->usual ? cli->usual : getenv("GPUBUF_SESSION");
    if (!cli->session || cli->session[0] == '\0')
        cli->session = "default";
    if (fleet_choose(cli) < 0 || open_chosen(cli) < 0)
        return gb_cli_failed(cli);
    return GB_CLI_DONE;
}

void gb_cli_end(struct gb_cli *cli) {
    json_decref(cli->problem);
    cli->problem = NULL;
    gpubuf_close(cli->opened[0]);
    gpubuf_close(cli->opened[1]);
    cli->client = cli->opened[0] = cli->opened[1] = NULL;
    free(cli->token);
    cli->token = NULL;
    free(cli->node);
    cli->node = NULL;
}

int gb_cli_run(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_signals signals;
    int r = gb_cli_begin(cli);

    if (r != GB_CLI_DONE) {
        gb_cli_end(cli);
        return r;
    }
    if (signals_begin(&signals, cli) < 0) {
        r = gb_cli_refused(cli, GB_CLI_FAILED, "no thread can be started for signals: %s", strerror(errno));
    } else {
        r = cli->command->run(cli, argc, argv);
        signals_end(&signals);
    }
    r = gb_cli_flush(cli, r);
    gb_cli_end(cli);
    return gb_cli_end_of(cli, r);
}

char *gb_cli_host_path(const struct gb_cli *cli, const char *path) {
    const char *host = cli->host ? cli->host : "";
    const char *mark = strstr(path, "%h");
    char *ret = NULL;
    char *at;

    if (!cli->host || !mark)
        return strdup(path);
    if (asprintf(&ret, "%.*s%s%s", (int)(mark - path), path, host, mark + 2) < 0)
        return NULL;
    for (at = ret + (mark - path); at < ret + (mark - path) + strlen(host); at++)
        if (*at == '/')
            *at = '_';
    return ret;
}
