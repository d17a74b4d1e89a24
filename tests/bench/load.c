#include "load.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static const struct {
    const char *name;
    void (*run)(const struct load_options *);
} modes[] = {{"put", load_put},     {"get", load_get},   {"redis", load_redis}, {"poll", load_poll},
             {"pairs", load_pairs}, {"idle", load_idle}, {"post", load_post},   {"puts", load_puts}};

static void usage(void) {
    fputs("usage: gb-bench-load put|get|redis|poll|pairs|idle|post|puts --port N|--socket PATH [options]\n"
          "  --path TEXT         target; one %d stands for the connection's number\n"
          "  --connections N     at once (1)\n"
          "  --bytes SIZE        of one body (64M)\n"
          "  --body FILE         what put sends, instead of made-up bytes\n"
          "  --header TEXT       one more line of its head\n"
          "  --piece SIZE        of one send or recv (256K)\n"
          "  --requests N        by each connection (put, get, redis)\n"
          "  --seconds S         instead of a number of requests (2)\n"
          "  --expect            wait for 100 Continue before the body\n"
          "  --fresh             a new connection for each request\n"
          "  --etag              poll with If-None-Match\n"
          "  --method M --json T what the post mode sends (POST {})\n"
          "  --idle N --pid PID  idle mode: connections to hold, process whose memory is read\n",
          stderr);
    exit(64);
}

void load_path(const struct load_options *options, unsigned number, char *ret_text, size_t size) {
    const char *mark = strstr(options->path, "%d");
    int n;

    if (mark)
        n = snprintf(ret_text, size, "%.*s%u%s", (int)(mark - options->path), options->path, number, mark + 2);
    else
        n = snprintf(ret_text, size, "%s", options->path);
    if (n < 0 || (size_t)n >= size)
        bench_die("the path is too long");
}

int load_connect(const struct load_options *options) {
    return options->socket ? bench_connect_unix(options->socket) : bench_connect(options->port);
}

static void parse(int argc, char **argv, struct load_options *options) {
    static const struct option table[] = {
        {"port", 1, NULL, 'p'},    {"path", 1, NULL, 'u'},   {"connections", 1, NULL, 'c'},
        {"bytes", 1, NULL, 'b'},   {"piece", 1, NULL, 'k'},  {"requests", 1, NULL, 'n'},
        {"seconds", 1, NULL, 's'}, {"expect", 0, NULL, 'x'}, {"fresh", 0, NULL, 'f'},
        {"etag", 0, NULL, 'e'},    {"idle", 1, NULL, 'i'},   {"pid", 1, NULL, 'q'},
        {"host", 1, NULL, 'h'},    {"method", 1, NULL, 'm'}, {"json", 1, NULL, 'j'},
        {"body", 1, NULL, 'B'},    {"header", 1, NULL, 'H'}, {"socket", 1, NULL, 'S'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 'p':
            options->port = (int)bench_parse_size(optarg, "port");
            break;
        case 'S':
            options->socket = optarg;
            break;
        case 'u':
            options->path = optarg;
            break;
        case 'h':
            options->host = optarg;
            break;
        case 'B':
            options->body = optarg;
            break;
        case 'H':
            options->header = optarg;
            break;
        case 'm':
            options->method = optarg;
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'c':
            options->connections = (unsigned)bench_parse_size(optarg, "connections");
            break;
        case 'b':
            options->bytes = bench_parse_size(optarg, "bytes");
            break;
        case 'k':
            options->piece_bytes = bench_parse_size(optarg, "piece");
            break;
        case 'n':
            options->requests = (unsigned)bench_parse_size(optarg, "requests");
            break;
        case 's':
            options->seconds = atof(optarg);
            break;
        case 'x':
            options->expect = true;
            break;
        case 'f':
            options->fresh = true;
            break;
        case 'e':
            options->etag = true;
            break;
        case 'i':
            options->idle = (unsigned)bench_parse_size(optarg, "idle");
            break;
        case 'q':
            options->pid = (pid_t)bench_parse_size(optarg, "pid");
            break;
        default:
            usage();
        }
    }
    if (optind != argc || (!options->port && !options->socket) || !options->connections || !options->piece_bytes)
        usage();
}

int main(int argc, char **argv) {
    struct load_options options = {.path = "/",
                                   .host = "127.0.0.1",
                                   .method = "POST",
                                   .json = "{}",
                                   .header = "",
                                   .connections = 1,
                                   .bytes = 64 << 20,
                                   .piece_bytes = 256 << 10,
                                   .seconds = 2.0};
    size_t i;

    if (argc < 2)
        usage();
    for (i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(argv[1], modes[i].name))
            break;
    if (i == sizeof modes / sizeof modes[0])
        usage();
    parse(argc - 1, argv + 1, &options);
    bench_raise_nofile();
    modes[i].run(&options);
    return 0;
}
