/* One command on several hosts: --hosts, --group and the nodes of a fleet. Each host is a process of its own, so
 * that one that hangs is killed at its time-out. Its output is kept, and shown with the name of the host before each
 * line when it has ended, in the order of the list. gb_cli_run_hosts() is called by main(). */

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/fleet/fleet.h"

#define PORT "7070"
#define LINE_BYTES 1024
#define PARALLEL 16
#define PARALLEL_MOST 1024
#define TIMEOUT_S 60.0
#define CHUNK (64 * 1024)

/* --- the list ----------------------------------------------------------------------------------------------------- */

static char *url_of(const char *name) {
    const char *colon = strrchr(name, ':');
    const char *bracket = strrchr(name, ']');
    char *url = NULL;

    if (strstr(name, "://"))
        return strdup(name);
    if (asprintf(&url, "http://%s%s", name, colon && (!bracket || colon > bracket) ? "" : ":" PORT) < 0)
        return NULL;
    return url;
}

/* One more; url NULL: the name is one, or a host. -1: no memory. */
static int add_host(struct gb_cli_hosts *hosts, const char *name, const char *url) {
    struct gb_cli_host host = {.fds = {-1, -1}};
    struct gb_cli_host *items = realloc(hosts->items, (hosts->count + 1) * sizeof(*items));

    if (!items)
        return -1;
    hosts->items = items;
    host.name = strdup(name);
    host.url = url ? strdup(url) : host.name ? url_of(name) : NULL;
    items[hosts->count++] = host;
    return host.name && host.url ? 0 : -1;
}

static bool has(const struct gb_cli_hosts *hosts, const char *name, size_t n) {
    size_t i;

    for (i = 0; i < hosts->count; i++)
        if (strlen(hosts->items[i].name) == n && memcmp(hosts->items[i].name, name, n) == 0)
            return true;
    return false;
}

/* A host that is named twice is asked once. */
static int add(struct gb_cli_hosts *hosts, const char *text, size_t n) {
    char *name;
    int r;

    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    while (n > 0 && strchr(" \t", text[0])) {
        text++;
        n--;
    }
    if (n == 0 || has(hosts, text, n))
        return 0;
    name = strndup(text, n);
    r = name ? add_host(hosts, name, NULL) : -1;
    free(name);
    return r;
}

static int read_file(FILE *file, struct gb_cli_hosts *hosts, const char **ret_why) {
    char line[LINE_BYTES];
    bool first = true;
    int r = 0;

    for (; r == 0 && fgets(line, sizeof(line), file); first = false) {
        *ret_why = first ? gb_conf_mark(line) : NULL;
        r = !*ret_why ? add(hosts, line, strcspn(line, "#")) : -1;
    }
    return r == 0 && !ferror(file) ? 0 : -1;
}

/* The same of a list alone. */
static int read_list(const char *text, struct gb_cli_hosts *ret) {
    struct gb_cli_hosts hosts = {0};
    int r = 0;

    while (r == 0 && *text != '\0') {
        size_t n = strcspn(text, ",");

        r = add(&hosts, text, n);
        text += n + (text[n] == ',');
    }
    if (r < 0)
        gb_cli_hosts_done(&hosts);
    else
        *ret = hosts;
    return r;
}

int gb_cli_hosts_read(const char *text, struct gb_cli_hosts *ret, const char **ret_why) {
    struct gb_cli_hosts hosts = {0};
    const char *why = NULL;
    FILE *file = NULL;
    int r;

    if (strcmp(text, "-") != 0 && access(text, F_OK) != 0) {
        r = read_list(text, &hosts);
    } else {
        file = strcmp(text, "-") == 0 ? stdin : fopen(text, "re");
        r = file ? read_file(file, &hosts, &why) : -1;
    }
    if (r < 0)
        *ret_why = why ? why : strerror(errno);
    if (file && file != stdin)
        fclose(file);
    if (r < 0)
        gb_cli_hosts_done(&hosts);
    else
        *ret = hosts;
    return r;
}

void gb_cli_hosts_done(struct gb_cli_hosts *hosts) {
    size_t i;

    for (i = 0; i < hosts->count; i++) {
        free(hosts->items[i].name);
        free(hosts->items[i].url);
        free(hosts->items[i].out[0].data);
        free(hosts->items[i].out[1].data);
    }
    free(hosts->items);
    *hosts = (struct gb_cli_hosts){0};
}

static const char *next_line(const char *text) {
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

static bool is_trace(const char *line) {
    return strncmp(line, GB_CLI_TRACE, strlen(GB_CLI_TRACE)) == 0;
}

/* The first line of what it said on standard error that is no trace, without the program's name. */
static void reason_of(const struct gb_cli_host *host, double timeout_s, char *ret, size_t size) {
    const char *text = host->out[1].data ? host->out[1].data : "";

    while (is_trace(text))
        text = next_line(text);
    if (strncmp(text, "gpubuf: ", 8) == 0)
        text += 8;
    if (host->timed_out)
        snprintf(ret, size, "no answer within %g s", timeout_s);
    else if (text[0] == '\0')
        snprintf(ret, size, "ended with status %d", host->status);
    else
        snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static void show_json(const struct gb_cli_host *host, const char *reason) {
    json_t *result =
        host->out[0].bytes > 0 ? json_loadb(host->out[0].data, host->out[0].bytes, JSON_DECODE_ANY, NULL) : NULL;
    json_t *line = json_pack("{s:s, s:s, s:i}", "host", host->name, "url", host->url, "exit", host->status);

    if (!line)
        line = json_pack("{s:s, s:i}", "host", "?", "exit", host->status);
    json_object_set_new(line, "result", host->status == 0 && result ? json_incref(result) : json_null());
    if (host->status != 0) {
        json_object_set_new(line, "error", json_string(reason));
        if (json_is_object(result))
            json_object_set(line, "problem", result);
    }
    gb_cli_json(stdout, line);
    json_decref(line);
    json_decref(result);
}

/* Names come from lists that others may have written. */
static void put_line(FILE *out, const char *host, const char *before, const char *text) {
    gb_cli_put(out, host);
    fprintf(out, ": %s", before);
    gb_cli_put(out, text);
    fputs("\n", out);
}

static void put_lines(FILE *out, const char *host, const char *text, bool (*wanted)(const char *line)) {
    char line[GB_CLI_CELL * 16];

    for (; *text != '\0'; text = next_line(text)) {
        if (wanted && !wanted(text))
            continue;
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
        put_line(out, host, "", line);
    }
}

/* Says what a host did: its lines with its name before them, or one JSON object. Lines of --verbose go to standard
 * error. */
static void show_host(const struct gb_cli_host *host, bool json, double timeout_s) {
    char reason[1024] = "";

    if (host->status != 0)
        reason_of(host, timeout_s, reason, sizeof(reason));
    if (host->out[1].data)
        put_lines(stderr, host->name, host->out[1].data, is_trace);
    if (json) {
        show_json(host, reason);
        return;
    }
    if (host->out[0].data)
        put_lines(stdout, host->name, host->out[0].data, NULL);
    if (host->status != 0)
        put_line(stdout, host->name, "failed: ", reason);
    else if (host->out[0].bytes == 0)
        put_line(stdout, host->name, "", "ok");
    if (host->out[0].cut)
        put_line(stdout, host->name, "", "(the rest is left out)");
}

/* --- nodes as hosts ----------------------------------------------------------------------------------------------- */

static bool has_labels(json_t *node, json_t *wanted) {
    json_t *labels = json_object_get(node, "labels");
    const char *key;
    json_t *value;

    json_object_foreach(wanted, key, value) {
        if (!json_equal(json_object_get(labels, key), value))
            return false;
    }
    return true;
}

static int add_nodes(struct gb_cli *cli, json_t *fleet, json_t *nodes, json_t *wanted, struct gb_cli_hosts *ret) {
    json_t *node;
    size_t i;

    json_array_foreach(nodes, i, node) {
        const char *url = gb_cli_fleet_url(fleet, node, gpubuf_url(cli->client));

        if (url[0] != '\0' && has_labels(node, wanted) && add_host(ret, gb_cli_text(node, "name"), url) < 0)
            return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    }
    return 0;
}

/* The nodes that have all these labels, "KEY=VALUE,..." or "" for all. 0, or -1 with cli->error. */
static int fleet_hosts(struct gb_cli *cli, const char *labels, struct gb_cli_hosts *ret) {
    json_t *wanted = gb_cli_labels(cli, "--hosts @", labels);
    json_t *fleet = wanted ? gb_cli_request(cli, "GET", "/v1/fleet", NULL) : NULL;
    json_t *nodes = fleet ? gb_cli_items(cli, "/v1/fleet/nodes") : NULL;
    int r = nodes ? add_nodes(cli, fleet, nodes, wanted, ret) : -1;

    json_decref(nodes);
    json_decref(fleet);
    json_decref(wanted);
    return r;
}

/* --- the processes ------------------------------------------------------------------------------------------------ */

struct fleet {
    struct gb_cli *cli;
    struct gb_cli_options given;      /* on the command line, without the configuration file */
    struct gb_cli_config_scope scope; /* of the daemon that is asked for the nodes of its fleet */
    int argc;
    char **argv;
    struct gb_cli_hosts hosts;
    size_t parallel;
    size_t running;
    size_t next;  /* to be started */
    size_t shown; /* said already, in the order of the list */
    double timeout_s;
    int signals;
    sigset_t before;
};

static bool of_fleet(const struct gb_cli_options *options) {
    return options->hosts && options->hosts[0] == '@';
}

/* What the host's section says; of a node what goes for the daemon that named it; of a group's other hosts the top.
 * All print alike. */
static void load_settings(const struct fleet *fleet, const struct gb_cli_host *host, struct gb_cli *cli) {
    struct gb_cli_config_scope scope = {.host = host->section, .named = true};

    if (of_fleet(&fleet->given))
        scope = fleet->scope;
    else
        scope.elsewhere = !host->section && !fleet->given.group;
    gb_cli_config_apply(cli, &scope);
    cli->options.url = host->url;
    cli->options.json = fleet->cli->options.json;
    cli->options.quiet = fleet->cli->options.quiet;
}

static void be_child(struct fleet *fleet, struct gb_cli_host *host, int out, int err) {
    struct gb_cli cli = {
        .options = fleet->given, .config = fleet->cli->config, .command = fleet->cli->command, .host = host->name};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int r;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &fleet->before, NULL);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    clearerr(stdout); /* the parent's reader may have gone, and not ours */
    load_settings(fleet, host, &cli);
    r = gb_cli_run(&cli, fleet->argc, fleet->argv);
    fflush(NULL);
    _exit(r);
}

static int start(struct fleet *fleet, struct gb_cli_host *host) {
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
    bool piped = pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0;

    fflush(NULL);
    host->pid = piped ? fork() : -1;
    if (host->pid == 0)
        be_child(fleet, host, out[1], err[1]);
    if (piped) {
        close(out[1]);
        close(err[1]);
    }
    if (host->pid < 0) {
        if (out[0] >= 0)
            close(out[0]);
        if (err[0] >= 0)
            close(err[0]);
        return -1;
    }
    host->fds[0] = out[0];
    host->fds[1] = err[0];
    host->end = gb_cli_now() + fleet->timeout_s;
    fleet->running++;
    return 0;
}

/* Keeps what came, up to the limit. */
static void keep(struct gb_cli_text *text, const char *data, size_t bytes) {
    char *grown;

    if (text->bytes + bytes > GB_CLI_HOST_OUTPUT) {
        text->cut = true;
        return;
    }
    grown = realloc(text->data, text->bytes + bytes + 1);
    if (!grown) {
        text->cut = true;
        return;
    }
    memcpy(grown + text->bytes, data, bytes);
    text->data = grown;
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

static void take(struct fleet *fleet, struct gb_cli_host *host, int which) {
    char data[CHUNK];
    ssize_t n = read(host->fds[which], data, sizeof(data));
    int status;

    if (n > 0) {
        keep(&host->out[which], data, (size_t)n);
        return;
    }
    if (n < 0 && errno == EINTR)
        return;
    close(host->fds[which]);
    host->fds[which] = -1;
    if (host->fds[0] >= 0 || host->fds[1] >= 0)
        return;
    host->status = GB_CLI_FAILED;
    if (waitpid(host->pid, &status, 0) == host->pid && WIFEXITED(status))
        host->status = WEXITSTATUS(status);
    if (host->timed_out)
        host->status = GB_CLI_UNREACHABLE;
    host->ended = true;
    fleet->running--;
}

static void show(struct fleet *fleet) {
    while (fleet->shown < fleet->hosts.count && fleet->hosts.items[fleet->shown].ended)
        show_host(&fleet->hosts.items[fleet->shown++], fleet->cli->options.json, fleet->timeout_s);
    fflush(stdout);
}

static void signal_all(struct fleet *fleet, int number) {
    size_t i;

    for (i = 0; i < fleet->hosts.count; i++)
        if (fleet->hosts.items[i].pid > 0 && !fleet->hosts.items[i].ended)
            kill(fleet->hosts.items[i].pid, number);
}

/* Kills those whose time has ended. Milliseconds until the next one's is. */
static int overdue(struct fleet *fleet) {
    double now = gb_cli_now();
    double least = 3600;
    size_t i;

    for (i = 0; i < fleet->hosts.count; i++) {
        struct gb_cli_host *host = &fleet->hosts.items[i];

        if (host->pid <= 0 || host->ended || host->timed_out)
            continue;
        if (host->end <= now) {
            host->timed_out = true;
            kill(host->pid, SIGKILL);
        } else if (host->end - now < least) {
            least = host->end - now;
        }
    }
    return (int)(least * 1e3) + 1;
}

/* An interrupt: the first lets the hosts' processes end in order, the second does not. */
static void interrupted(struct fleet *fleet) {
    struct signalfd_siginfo info;
    int number;

    if (read(fleet->signals, &info, sizeof(info)) != sizeof(info))
        return;
    number = (int)info.ssi_signo;
    signal_all(fleet, atomic_exchange(&fleet->cli->interrupted, number) != 0 ? SIGKILL : number);
    fleet->next = fleet->hosts.count;
}

static void wait_some(struct fleet *fleet, struct pollfd *polls) {
    int wait_ms = overdue(fleet);
    size_t i;

    polls[0] = (struct pollfd){.fd = fleet->signals, .events = POLLIN};
    for (i = 0; i < 2 * fleet->hosts.count; i++)
        polls[i + 1] = (struct pollfd){.fd = fleet->hosts.items[i / 2].fds[i % 2], .events = POLLIN};
    if (poll(polls, 2 * fleet->hosts.count + 1, wait_ms) <= 0)
        return;
    for (i = 0; i < 2 * fleet->hosts.count; i++)
        if (polls[i + 1].revents != 0)
            take(fleet, &fleet->hosts.items[i / 2], (int)(i % 2));
    if (polls[0].revents != 0)
        interrupted(fleet);
}

static int verdict(struct fleet *fleet) {
    size_t good = 0;
    size_t i;

    for (i = 0; i < fleet->hosts.count; i++)
        good += fleet->hosts.items[i].ended && fleet->hosts.items[i].status == GB_CLI_DONE;
    if (atomic_load(&fleet->cli->interrupted))
        return gb_cli_end_of(fleet->cli, GB_CLI_INTERRUPTED);
    return good == fleet->hosts.count ? GB_CLI_DONE : good > 0 ? GB_CLI_SOME_HOSTS : GB_CLI_NO_HOST;
}

static int run(struct fleet *fleet) {
    struct pollfd *polls = calloc(2 * fleet->hosts.count + 1, sizeof(*polls));

    if (!polls)
        return gb_cli_refused(fleet->cli, GB_CLI_FAILED, "out of memory");
    while (fleet->running > 0 || fleet->next < fleet->hosts.count) {
        while (fleet->next < fleet->hosts.count && fleet->running < fleet->parallel) {
            struct gb_cli_host *host = &fleet->hosts.items[fleet->next];

            if (start(fleet, host) < 0) {
                keep(&host->out[1], strerror(errno), strlen(strerror(errno)));
                host->status = GB_CLI_FAILED;
                host->ended = true;
            }
            fleet->next++;
        }
        if (fleet->running > 0)
            wait_some(fleet, polls);
        show(fleet);
    }
    free(polls);
    return verdict(fleet);
}

/* Those of the list that the configuration file has take its URL. -1: no memory. */
static int know(struct gb_cli *cli, struct gb_cli_hosts *hosts) {
    size_t i;

    for (i = 0; i < hosts->count; i++) {
        struct gb_cli_host *host = &hosts->items[i];
        const char *url;

        host->section = gb_cli_config_find(cli->config, GB_CLI_CONFIG_HOST, host->name);
        url = host->section ? host->section->values[GB_CLI_CONFIG_URL] : NULL;
        if (!url)
            continue;
        free(host->url);
        host->url = strdup(url);
        if (!host->url)
            return -1;
    }
    return 0;
}

static int read_group(struct gb_cli *cli, struct gb_cli_hosts *ret) {
    const struct gb_cli_section *group = gb_cli_config_named(cli, GB_CLI_CONFIG_GROUP, "--group", cli->options.group);

    if (!group)
        return GB_CLI_USAGE;
    if (read_list(group->values[GB_CLI_CONFIG_HOSTS], ret) < 0 || know(cli, ret) < 0)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    return GB_CLI_DONE;
}

/* 0, or the exit status of what was said. */
static int read_hosts(struct gb_cli *cli, struct gb_cli_hosts *ret) {
    const char *text = cli->options.hosts;
    const char *why;
    int r = GB_CLI_DONE;

    if (!text)
        return read_group(cli, ret);
    if (text[0] != '@') {
        if (gb_cli_hosts_read(text, ret, &why) < 0)
            r = gb_cli_refused(cli, GB_CLI_USAGE, "--hosts %s: %s", text, why);
        else if (know(cli, ret) < 0)
            r = gb_cli_refused(cli, GB_CLI_USAGE, "--hosts %s: %s", text, strerror(errno));
        return r;
    }
    r = gb_cli_begin(cli);
    if (r == GB_CLI_DONE && fleet_hosts(cli, text + 1, ret) < 0)
        r = gb_cli_failed(cli);
    gb_cli_end(cli);
    return r;
}

/* What the configuration file says of all hosts. 0, or the exit status of what was said. */
static int configure(struct fleet *fleet) {
    struct gb_cli *cli = fleet->cli;
    const struct gb_cli_options *o = &cli->options;
    int r;

    if ((o->hosts != NULL) + (o->group != NULL) + (o->host && !of_fleet(o)) > 1)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--hosts, --group and --host each say which daemons: give one of them");
    r = gb_cli_config_scope(cli, &fleet->scope);
    if (r == GB_CLI_DONE)
        gb_cli_config_apply(cli, &fleet->scope);
    return r;
}

int gb_cli_run_hosts(struct gb_cli *cli, int argc, char **argv) {
    struct fleet fleet = {
        .cli = cli, .given = cli->options, .argc = argc, .argv = argv, .parallel = PARALLEL, .timeout_s = TIMEOUT_S};
    sigset_t set;
    int r = configure(&fleet);

    if (r != GB_CLI_DONE)
        return r;
    if (cli->options.given[GB_CLI_ID_parallel])
        fleet.parallel = cli->options.parallel;
    if (fleet.parallel == 0 || fleet.parallel > PARALLEL_MOST)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--parallel is a number from 1 to %d", PARALLEL_MOST);
    if (cli->options.timeout > 0)
        fleet.timeout_s = cli->options.timeout;
    r = read_hosts(cli, &fleet.hosts);
    if (r != GB_CLI_DONE) {
        gb_cli_hosts_done(&fleet.hosts);
        return r;
    }
    gb_cli_signals_fatal(&set);
    sigprocmask(SIG_BLOCK, &set, &fleet.before);
    signal(SIGPIPE, SIG_IGN); /* who reads along may leave: the hosts behind are still to be asked */
    fleet.signals = signalfd(-1, &set, SFD_CLOEXEC);
    if (fleet.hosts.count == 0)
        r = gb_cli_refused(cli, GB_CLI_USAGE, "%s names no host", cli->options.hosts ? "--hosts" : "--group");
    else
        r = run(&fleet);
    close(fleet.signals);
    gb_cli_hosts_done(&fleet.hosts);
    return gb_cli_flush(cli, r);
}
