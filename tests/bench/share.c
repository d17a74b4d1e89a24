/* Sharing as a client of libgpubuf sees it: the time of a mapping, mappings per second, and copies between slabs and
 * buffers against their ceiling. Prints one JSON object, as the load generator does. */
#include "share.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define MAP_NAME "bench-share"
#define POOL_NAME "bench-share"
#define ROUND_TRIPS 2 /* of a map and its unmap */

void share_must(int rc, const struct gpubuf_error *err, const char *what) {
    if (rc < 0)
        bench_die("%s: %s [%s]", what, err->detail, err->slug);
}

gpubuf_client *share_open(const struct share *share) {
    struct gpubuf_options options = {.answer_timeout_s = 250};
    struct gpubuf_error err;
    gpubuf_client *client = NULL;
    char url[160];

    snprintf(url, sizeof url, "unix://%s", share->socket);
    options.url = url;
    share_must(gpubuf_open(&options, &client, &err), &err, url);
    return client;
}

void share_ask(gpubuf_client *client, const char *method, const char *path, const char *json) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct gpubuf_error err;
    char target[160];

    snprintf(target, sizeof target, "/v1/sessions/default/%s", path);
    share_must(gpubuf_request(client, method, target, json ? headers : NULL, json, json ? strlen(json) : 0, &err), &err,
               target);
}

void share_make_buffer(gpubuf_client *client, const char *name, uint64_t bytes, const char *kind, const char *pool) {
    char json[320];
    int n = snprintf(json, sizeof json, "{\"name\":\"%s\",\"bytes\":%" PRIu64, name, bytes);

    if (kind)
        n += snprintf(json + n, sizeof json - (size_t)n, ",\"kind\":\"%s\"", kind);
    if (pool)
        n += snprintf(json + n, sizeof json - (size_t)n, ",\"pool\":\"%s\"", pool);
    snprintf(json + n, sizeof json - (size_t)n, "}");
    share_ask(client, "POST", "buffers", json);
}

/* --- hands -------------------------------------------------------------------------------------------------------- */

struct crew {
    void (*prepare)(struct share_hand *);
    void (*work)(struct share_hand *);
    void (*finish)(struct share_hand *);
    pthread_barrier_t ready;
    pthread_barrier_t over;
};

struct member {
    struct share_hand hand;
    struct crew *crew;
};

static void *member_main(void *arg) {
    struct member *member = arg;

    member->crew->prepare(&member->hand);
    pthread_barrier_wait(&member->crew->ready);
    member->crew->work(&member->hand);
    pthread_barrier_wait(&member->crew->over);
    member->crew->finish(&member->hand);
    return NULL;
}

double share_run(const struct share *share, void (*prepare)(struct share_hand *), void (*work)(struct share_hand *),
                 void (*finish)(struct share_hand *)) {
    struct crew crew = {.prepare = prepare, .work = work, .finish = finish};
    struct member members[SHARE_CLIENTS_MAX];
    pthread_t threads[SHARE_CLIENTS_MAX];
    uint64_t start_ns;
    uint64_t end_ns;
    unsigned i;

    pthread_barrier_init(&crew.ready, NULL, share->clients + 1);
    pthread_barrier_init(&crew.over, NULL, share->clients + 1);
    for (i = 0; i < share->clients; i++) {
        members[i] = (struct member){.hand = {.share = share, .number = i}, .crew = &crew};
        if (pthread_create(&threads[i], NULL, member_main, &members[i]) != 0)
            bench_die("no thread");
    }
    pthread_barrier_wait(&crew.ready);
    start_ns = bench_now_ns();
    pthread_barrier_wait(&crew.over);
    end_ns = bench_now_ns();
    for (i = 0; i < share->clients; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crew.ready);
    pthread_barrier_destroy(&crew.over);
    return (double)(end_ns - start_ns) / 1e9;
}

void share_print_bytes(const struct share *share, double seconds) {
    uint64_t bytes = share->bytes * share->count * share->clients;

    printf("{\"requests\": %" PRIu64 ", \"errors\": 0, \"seconds\": %.6f, \"bytes\": %" PRIu64
           ", \"bytes_per_s\": %.0f}\n",
           share->count * share->clients, seconds, bytes, (double)bytes / seconds);
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

static unsigned way_of(const char *word) {
    static const char *const words[] = {"vmm", "pool", "legacy", "memfd"};
    unsigned i;

    for (i = 0; word && i < sizeof words / sizeof words[0]; i++) {
        if (!strcmp(word, words[i]))
            return 1u << i;
    }
    if (word)
        bench_die("--way is vmm, pool, legacy or memfd");
    return 0;
}

static void make_buffer(const struct share *share, gpubuf_client *client) {
    if (share->pool)
        share_ask(client, "POST", "pools", "{\"name\":\"" POOL_NAME "\",\"exportable\":true}");
    share_make_buffer(client, MAP_NAME, share->bytes, share->kind, share->pool);
}

static void drop_buffer(const struct share *share, gpubuf_client *client) {
    share_ask(client, "DELETE", "buffers/" MAP_NAME, NULL);
    if (share->pool)
        share_ask(client, "DELETE", "pools/" POOL_NAME "?force=true", NULL);
    gpubuf_close(client);
}

/* Nanoseconds of the map alone. */
static uint64_t map_once(const struct share *share, gpubuf_client *client) {
    struct gpubuf_map_params params = {.ways = way_of(share->way)};
    gpubuf_mapping *mapping = NULL;
    struct gpubuf_error err;
    uint64_t start_ns = bench_now_ns();
    uint64_t took_ns;

    share_must(gpubuf_map(client, "default", MAP_NAME, &params, &mapping, &err), &err, "map");
    took_ns = bench_now_ns() - start_ns;
    if (gpubuf_mapping_info_of(mapping)->bytes != share->bytes)
        bench_die("other bytes are mapped");
    share_must(gpubuf_unmap(mapping, &err), &err, "unmap");
    return took_ns;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void time_maps(const struct share *share) {
    gpubuf_client *client = share_open(share);
    uint64_t *took_ns = calloc(share->count, sizeof *took_ns);
    uint64_t i;

    if (!took_ns || share->count == 0)
        bench_die("--count is at least 1");
    make_buffer(share, client);
    map_once(share, client); /* opens the driver and the connection */
    for (i = 0; i < share->count; i++)
        took_ns[i] = map_once(share, client);
    qsort(took_ns, share->count, sizeof *took_ns, by_size);
    printf("{\"errors\": 0, \"ms\": %.6f, \"least_ms\": %.6f, \"most_ms\": %.6f}\n",
           (double)took_ns[share->count / 2] / 1e6, (double)took_ns[0] / 1e6, (double)took_ns[share->count - 1] / 1e6);
    free(took_ns);
    drop_buffer(share, client);
}

static void ask_plainly(gpubuf_client *client) {
    struct gpubuf_error err;
    int i;

    for (i = 0; i < ROUND_TRIPS; i++)
        share_must(gpubuf_request(client, "GET", "/livez", NULL, NULL, 0, &err), &err, "GET /livez");
}

/* Pairs of map and unmap, or the same number of requests without work. */
static void count_pairs(const struct share *share, bool plain) {
    gpubuf_client *client = share_open(share);
    uint64_t start_ns;
    uint64_t pairs = 0;
    double seconds;

    make_buffer(share, client);
    map_once(share, client);
    start_ns = bench_now_ns();
    do {
        if (plain)
            ask_plainly(client);
        else
            map_once(share, client);
        pairs++;
        seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    } while (seconds < share->seconds);
    printf("{\"errors\": 0, \"seconds\": %.6f, \"requests_per_s\": %.1f}\n", seconds, (double)pairs / seconds);
    drop_buffer(share, client);
}

/* --- the command line --------------------------------------------------------------------------------------------- */

static void usage(void) {
    fputs("usage: gb-bench-share map|open|ask|slab|ceiling [--socket PATH] [--bytes N] [--count N] [--clients N]\n"
          "       [--seconds N] [--kind KIND] [--pool] [--way WAY] [--down] [--atomic] [--device host|cuda]\n",
          stderr);
    exit(64);
}

static void read_options(int argc, char **argv, struct share *share) {
    static const struct option options[] = {
        {"socket", 1, NULL, 's'},  {"bytes", 1, NULL, 'b'},  {"count", 1, NULL, 'c'},  {"clients", 1, NULL, 'n'},
        {"seconds", 1, NULL, 't'}, {"kind", 1, NULL, 'k'},   {"pool", 0, NULL, 'p'},   {"way", 1, NULL, 'w'},
        {"down", 0, NULL, 'd'},    {"atomic", 0, NULL, 'a'}, {"device", 1, NULL, 'D'}, {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's':
            share->socket = optarg;
            break;
        case 'b':
            share->bytes = bench_parse_size(optarg, "bytes");
            break;
        case 'c':
            share->count = bench_parse_size(optarg, "count");
            break;
        case 'n':
            share->clients = (unsigned)bench_parse_size(optarg, "clients");
            break;
        case 't':
            share->seconds = strtod(optarg, NULL);
            break;
        case 'k':
            share->kind = optarg;
            break;
        case 'p':
            share->pool = POOL_NAME;
            break;
        case 'w':
            share->way = optarg;
            break;
        case 'd':
            share->down = true;
            break;
        case 'a':
            share->atomic = true;
            break;
        case 'D':
            share->device = optarg;
            break;
        default:
            usage();
        }
    }
}

int main(int argc, char **argv) {
    struct share share = {.device = "host", .bytes = 64 << 20, .count = 1, .clients = 1, .seconds = 1};
    const char *mode;

    read_options(argc, argv, &share);
    if (optind + 1 != argc || share.clients == 0 || share.clients > SHARE_CLIENTS_MAX)
        usage();
    mode = argv[optind];
    if (!strcmp(mode, "ceiling")) {
        share_ceiling(&share);
        return 0;
    }
    if (!share.socket)
        usage();
    if (!strcmp(mode, "map"))
        time_maps(&share);
    else if (!strcmp(mode, "open") || !strcmp(mode, "ask"))
        count_pairs(&share, mode[0] == 'a');
    else if (!strcmp(mode, "slab"))
        share_slab(&share);
    else
        usage();
    return 0;
}
