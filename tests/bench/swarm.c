/* Many nodes of one fleet in one process, by the library that the daemon has: what they cost the directory, and whether
 * one of them loses its place there. Prints a line of JSON each ten seconds; the last one is of the time when all were
 * open. */
#include <getopt.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "util.h"

#define TICK_US 100000
#define REPORT_S 10
#define REST_S 5                     /* between the joins and the rolling restart, and twice that behind it */
#define FIRST_UUID 0x737761726d0000u /* constant, so that a further run has the same nodes */

struct options {
    const char *etcd;
    const char *hubs; /* NULL: the members speak to etcd themselves */
    pid_t hub_pid[8];
    unsigned hub_count;
    unsigned first; /* number of the first member: others are another process's */
    bool hidden;    /* the members have no address: each waits for orders at a hub */
    const char *fleet;
    pid_t pid;
    unsigned members;
    unsigned ttl_s;
    unsigned join_s;
    unsigned seconds;
    bool restart;
};

struct member {
    struct gb_fleet *fleet; /* NULL: not open yet */
    bool joined;            /* when it was looked at last */
    uint64_t since_ns;      /* of that state */
    uint64_t requests;      /* when it was looked at last, as those below */
    uint64_t renewals;
    uint64_t failures;
};

/* Beginning of a time, and what two processes had used then. */
struct meter {
    uint64_t at_ns;
    double etcd_s;
    double own_s;
    double hubs_s[8];
    uint64_t requests;
};

struct swarm {
    struct options options;
    struct member *members;
    uint64_t start_ns;
    unsigned opened;
    unsigned restarted;
    unsigned joined;
    unsigned fallen;
    uint64_t requests; /* of all, those that were closed too, as those below */
    uint64_t renewals;
    uint64_t failures;
};

/* --- processes ---------------------------------------------------------------------------------------------------- */

/* User and system time. 0: this process. */
static double cpu_s(pid_t pid) {
    char path[64], text[1024];
    unsigned long user = 0, kernel = 0;
    const char *at = NULL;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)(pid ? pid : getpid()));
    f = fopen(path, "re");
    if (f && fgets(text, sizeof text, f))
        at = strrchr(text, ')'); /* the name may have anything in it */
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
        bench_die("%s cannot be read", path);
    fclose(f);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static double resident_mib(pid_t pid) {
    char path[64];
    long pages = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)(pid ? pid : getpid()));
    f = fopen(path, "re");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        bench_die("%s cannot be read", path);
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* The pid of a shell around the program would give figures too. */
static void check_is(pid_t pid, const char *program) {
    char path[64], name[32] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    f = fopen(path, "re");
    if (!f || !fgets(name, sizeof name, f) || strncmp(name, program, strlen(program)) != 0)
        bench_die("process %d is not %s", (int)pid, program);
    fclose(f);
}

static struct meter meter(const struct swarm *swarm) {
    struct meter m = {bench_now_ns(), cpu_s(swarm->options.pid), cpu_s(0), {0}, swarm->requests};
    unsigned i;

    for (i = 0; i < swarm->options.hub_count; i++)
        m.hubs_s[i] = cpu_s(swarm->options.hub_pid[i]);
    return m;
}

/* Of the hub that had most to do. */
static double busiest_s(const struct swarm *swarm, const struct meter *from, const struct meter *to) {
    double most = 0;
    unsigned i;

    for (i = 0; i < swarm->options.hub_count; i++)
        if (to->hubs_s[i] - from->hubs_s[i] > most)
            most = to->hubs_s[i] - from->hubs_s[i];
    return most;
}

static double largest_hub_mib(const struct swarm *swarm) {
    double most = 0;
    unsigned i;

    for (i = 0; i < swarm->options.hub_count; i++) {
        double mib = resident_mib(swarm->options.hub_pid[i]);

        most = mib > most ? mib : most;
    }
    return most;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

static size_t device(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]) {
    (void)app;
    ret[0] = (struct gb_fleet_device){
        .uuid = "GPU-0", .name = "none", .bytes = 80ull << 30, .free_bytes = 60ull << 30, .committed_bytes = 1 << 30};
    return 1;
}

/* Members begin with different hubs, as daemons that name them in different orders. */
static const char *rotate(const char *list, unsigned by, char *ret, size_t size) {
    unsigned count = 1;
    const char *at = list;

    for (; *at; at++)
        count += *at == ',';
    at = list;
    for (by %= count; by > 0; by--)
        at = strchr(at, ',') + 1;
    snprintf(ret, size, "%s%s%.*s", at, at > list ? "," : "", at > list ? (int)(at - list - 1) : 0, list);
    return ret;
}

static void open_member(struct swarm *swarm, unsigned i) {
    const struct options *o = &swarm->options;
    struct gb_fleet_url url = {.network.s = "default"};
    char hubs[1024];
    struct gb_fleet_config config = {.endpoints = o->hubs ? rotate(o->hubs, i, hubs, sizeof hubs) : o->etcd,
                                     .hubs = o->hubs != NULL,
                                     .fleet = swarm->options.fleet,
                                     .uuid = FIRST_UUID + o->first + i,
                                     .urls = &url,
                                     .url_count = o->hidden ? 0 : 1,
                                     .labels = "{\"site\":\"swarm\"}",
                                     .version = "swarm",
                                     .ttl_s = swarm->options.ttl_s,
                                     .on.devices = device};
    struct gb_error err = GB_ERROR_INIT;

    snprintf(config.node.s, sizeof config.node.s, "swarm-%u", o->first + i);
    snprintf(url.url, sizeof url.url, "http://swarm-%u:7070", o->first + i);
    if (gb_fleet_open(&config, &swarm->members[i].fleet, &err) < 0)
        bench_die("member %u: %s", i, err.detail);
}

/* Whether it is joined, and has been since it was first seen to be. */
static void look_at(struct swarm *swarm, unsigned i) {
    struct member *m = &swarm->members[i];
    struct gb_fleet_stat stat;
    bool joined;

    if (!m->fleet)
        return;
    gb_fleet_stat(m->fleet, &stat);
    joined = stat.state == GB_FLEET_JOINED;
    if (m->joined && (!joined || stat.since_ns != m->since_ns)) {
        swarm->fallen++;
        fprintf(stderr, "member %u fell out and is %s: %s\n", i, gb_fleet_state_name(stat.state), stat.why.detail);
    }
    swarm->joined += (unsigned)joined - (unsigned)m->joined;
    swarm->requests += stat.requests - m->requests;
    swarm->renewals += stat.renewals - m->renewals;
    swarm->failures += stat.failures - m->failures;
    *m = (struct member){m->fleet, joined, stat.since_ns, stat.requests, stat.renewals, stat.failures};
}

static void close_member(struct swarm *swarm, unsigned i) {
    look_at(swarm, i);
    gb_fleet_close(swarm->members[i].fleet);
    swarm->joined -= swarm->members[i].joined;
    swarm->members[i] = (struct member){0};
}

/* How many of all are to have been dealt with by now, spread evenly between the two times. */
static unsigned due(const struct swarm *swarm, double from_s, double to_s) {
    double s = (double)(bench_now_ns() - swarm->start_ns) / 1e9;
    unsigned all = swarm->options.members;

    if (s >= to_s)
        return all;
    return s <= from_s ? 0 : (unsigned)((s - from_s) / (to_s - from_s) * all);
}

static void step(struct swarm *swarm) {
    const struct options *o = &swarm->options;
    unsigned open = due(swarm, 0, o->join_s);
    unsigned restart = o->restart ? due(swarm, o->join_s + REST_S, (double)o->seconds - 2 * REST_S) : 0;
    unsigned i;

    while (swarm->opened < open)
        open_member(swarm, swarm->opened++);
    while (swarm->restarted < restart) {
        close_member(swarm, swarm->restarted);
        open_member(swarm, swarm->restarted++);
    }
    for (i = 0; i < swarm->opened; i++)
        look_at(swarm, i);
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

struct counting {
    struct gb_fleet_nodes nodes;
    sem_t done;
};

static void counted(struct gb_fleet_ask *ask) {
    sem_post(&((struct counting *)ask)->done);
}

/* Nodes with a lease, as a member that is joined reads them; -1: none is, or the directory does not say. */
static long alive(const struct swarm *swarm) {
    struct counting counting = {.nodes.ask.done = counted};
    unsigned i = 0;
    long count = 0;
    size_t n;

    while (i < swarm->opened && !swarm->members[i].joined)
        i++;
    if (i == swarm->opened)
        return -1;
    sem_init(&counting.done, 0, 0);
    gb_fleet_list_nodes(swarm->members[i].fleet, &counting.nodes);
    while (sem_wait(&counting.done) != 0)
        continue;
    for (n = 0; n < counting.nodes.count; n++)
        count += counting.nodes.items[n].alive;
    free(counting.nodes.items);
    return counting.nodes.ask.error.code == GB_OK ? count : -1;
}

static void report(const struct swarm *swarm, const struct meter *from) {
    struct meter now = meter(swarm); /* before the list, which is work for both */
    double s = (double)(now.at_ns - from->at_ns) / 1e9;

    if (swarm->options.hub_count > 0)
        printf("{\"hub_core\": %.4f, \"hub_mib\": %.1f}\n", busiest_s(swarm, from, &now) / s, largest_hub_mib(swarm));
    printf(
        "{\"s\": %.0f, \"over_s\": %.0f, \"open\": %u, \"joined\": %u, \"alive\": %ld, \"restarted\": %u, "
        "\"false_expiries\": %u, \"failed_requests\": %" PRIu64 ", \"renewals\": %" PRIu64
        ", \"requests_per_s\": %.1f, \"etcd_core\": %.4f, \"etcd_mib\": %.1f, \"own_core\": %.4f, \"own_mib\": %.1f}\n",
        (double)(now.at_ns - swarm->start_ns) / 1e9, s, swarm->opened, swarm->joined, alive(swarm), swarm->restarted,
        swarm->fallen, swarm->failures, swarm->renewals, (double)(now.requests - from->requests) / s,
        (now.etcd_s - from->etcd_s) / s, resident_mib(swarm->options.pid), (now.own_s - from->own_s) / s,
        resident_mib(0));
    fflush(stdout);
}

static void run(struct swarm *swarm) {
    uint64_t end_ns, report_ns;
    struct meter last, all_open;

    swarm->start_ns = bench_now_ns();
    end_ns = swarm->start_ns + swarm->options.seconds * 1000000000ull;
    report_ns = swarm->start_ns + REPORT_S * 1000000000ull;
    last = all_open = meter(swarm);
    while (bench_now_ns() < end_ns) {
        unsigned open = swarm->opened;

        step(swarm);
        if (swarm->opened == swarm->options.members && open < swarm->opened)
            all_open = meter(swarm);
        if (bench_now_ns() >= report_ns && report_ns < end_ns) {
            report(swarm, &last);
            last = meter(swarm);
            report_ns += REPORT_S * 1000000000ull;
        }
        usleep(TICK_US);
    }
    step(swarm);
    report(swarm, &all_open);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static void usage(void) {
    fputs("usage: gb-bench-swarm --etcd URL --pid PID [options]\n"
          "  --pid PID        etcd's process\n"
          "  --hubs URL,...   members speak to these, of the same fleet\n"
          "  --hub-pid PID    of one of them; given once for each\n"
          "  --first N        number of the first member, where several processes have some each (0)\n"
          "  --hidden         members have no address, and wait for orders\n"
          "  --fleet NAME     made if the directory has none of it (swarm)\n"
          "  --members N      (1000)\n"
          "  --ttl S          of their leases (30)\n"
          "  --join S         in which they open, one after the other (30)\n"
          "  --seconds S      in all (120)\n"
          "  --restart        closes and opens each member once\n"
          "Exit status 1: a member fell out, or not all are joined at the end.\n",
          stderr);
    exit(64);
}

static void parse(int argc, char **argv, struct options *o) {
    static const struct option table[] = {{"hubs", 1, NULL, 'h'},  {"hub-pid", 1, NULL, 'P'}, {"hidden", 0, NULL, 'H'},
                                          {"first", 1, NULL, 'F'}, {"etcd", 1, NULL, 'e'},    {"pid", 1, NULL, 'p'},
                                          {"fleet", 1, NULL, 'f'}, {"members", 1, NULL, 'n'}, {"ttl", 1, NULL, 't'},
                                          {"join", 1, NULL, 'j'},  {"seconds", 1, NULL, 's'}, {"restart", 0, NULL, 'r'},
                                          {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'e')
            o->etcd = optarg;
        else if (c == 'f')
            o->fleet = optarg;
        else if (c == 'h')
            o->hubs = optarg;
        else if (c == 'H')
            o->hidden = true;
        else if (c == 'F')
            o->first = (unsigned)bench_parse_size(optarg, "first");
        else if (c == 'P' && o->hub_count < 8)
            o->hub_pid[o->hub_count++] = (pid_t)bench_parse_size(optarg, "hub-pid");
        else if (c == 'p')
            o->pid = (pid_t)bench_parse_size(optarg, "pid");
        else if (c == 'n')
            o->members = (unsigned)bench_parse_size(optarg, "members");
        else if (c == 't')
            o->ttl_s = (unsigned)bench_parse_size(optarg, "ttl");
        else if (c == 'j')
            o->join_s = (unsigned)bench_parse_size(optarg, "join");
        else if (c == 's')
            o->seconds = (unsigned)bench_parse_size(optarg, "seconds");
        else if (c == 'r')
            o->restart = true;
        else
            usage();
    }
    if (optind != argc || !o->etcd || !o->pid || !o->members)
        usage();
    if (o->seconds <= o->join_s + (o->restart ? 3 * REST_S : 0))
        bench_die("--seconds is too short for the joins%s", o->restart ? " and the restart" : "");
}

int main(int argc, char **argv) {
    struct swarm swarm = {.options = {.fleet = "swarm", .members = 1000, .ttl_s = 30, .join_s = 30, .seconds = 120}};
    struct gb_fleet_config config = {0};
    struct gb_error err = GB_ERROR_INIT;
    char uuid[40];
    unsigned i;

    parse(argc, argv, &swarm.options);
    check_is(swarm.options.pid, "etcd");
    for (i = 0; i < swarm.options.hub_count; i++)
        check_is(swarm.options.hub_pid[i], "gpubufd");
    bench_raise_nofile();
    swarm.members = calloc(swarm.options.members, sizeof *swarm.members);
    if (!swarm.members)
        bench_die("no memory");
    config.endpoints = swarm.options.etcd;
    config.fleet = swarm.options.fleet;
    if (gb_fleet_init(&config, uuid, &err) < 0)
        bench_die("%s", err.detail);
    run(&swarm);
    i = swarm.joined;
    while (swarm.opened > 0)
        close_member(&swarm, --swarm.opened);
    free(swarm.members);
    return swarm.fallen > 0 || i < swarm.options.members;
}
