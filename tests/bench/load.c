#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define STALL_S 20 /* a server without progress for this time has failed */

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
          "  --tls               over TLS; the server's certificate is not verified\n"
          "  --tls-priority T    GnuTLS's priority string (TLS 1.3, AES-128-GCM, X25519)\n"
          "  --resume            with --tls --fresh: each connection resumes the one before\n"
          "  --etag              poll with If-None-Match\n"
          "  --status N          what polls are answered with (200)\n"
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

bool load_connect(const struct load_options *options, const gnutls_datum_t *ticket, struct bench_wire *ret) {
    *ret = BENCH_WIRE_NONE;
    ret->fd = options->socket ? bench_connect_unix(options->socket) : bench_connect(options->port);
    if (ret->fd < 0)
        return false;
    bench_give_up_after(ret->fd, STALL_S);
    if (options->tls)
        ret->tls = bench_tls_open(options->tls, ret->fd, ticket);
    if (options->tls && !ret->tls) {
        int why = errno;

        bench_wire_close(ret);
        errno = why;
        return false;
    }
    return true;
}

static void take(struct load_options *options, int option, const char *value) {
    switch (option) {
    case 'p':
        options->port = (int)bench_parse_size(value, "port");
        break;
    case 'S':
        options->socket = value;
        break;
    case 'u':
        options->path = value;
        break;
    case 'h':
        options->host = value;
        break;
    case 'B':
        options->body = value;
        break;
    case 'H':
        options->header = value;
        break;
    case 'm':
        options->method = value;
        break;
    case 'j':
        options->json = value;
        break;
    case 'c':
        options->connections = (unsigned)bench_parse_size(value, "connections");
        break;
    case 'b':
        options->bytes = bench_parse_size(value, "bytes");
        break;
    case 'k':
        options->piece_bytes = bench_parse_size(value, "piece");
        break;
    case 'n':
        options->requests = (unsigned)bench_parse_size(value, "requests");
        break;
    case 's':
        options->seconds = atof(value);
        break;
    case 'x':
        options->expect = true;
        break;
    case 'f':
        options->fresh = true;
        break;
    case 'r':
        options->resume = true;
        break;
    case 'T':
        options->over_tls = true;
        break;
    case 'P':
        options->tls_priority = value;
        break;
    case 'e':
        options->etag = true;
        break;
    case 'a':
        options->status = (int)bench_parse_size(value, "status");
        break;
    case 'i':
        options->idle = (unsigned)bench_parse_size(value, "idle");
        break;
    case 'q':
        options->pid = (pid_t)bench_parse_size(value, "pid");
        break;
    default:
        usage();
    }
}

static void parse(int argc, char **argv, struct load_options *options) {
    static const struct option table[] = {
        {"port", 1, NULL, 'p'},    {"path", 1, NULL, 'u'},   {"connections", 1, NULL, 'c'},
        {"bytes", 1, NULL, 'b'},   {"piece", 1, NULL, 'k'},  {"requests", 1, NULL, 'n'},
        {"seconds", 1, NULL, 's'}, {"expect", 0, NULL, 'x'}, {"fresh", 0, NULL, 'f'},
        {"etag", 0, NULL, 'e'},    {"idle", 1, NULL, 'i'},   {"pid", 1, NULL, 'q'},
        {"host", 1, NULL, 'h'},    {"method", 1, NULL, 'm'}, {"json", 1, NULL, 'j'},
        {"body", 1, NULL, 'B'},    {"header", 1, NULL, 'H'}, {"socket", 1, NULL, 'S'},
        {"tls", 0, NULL, 'T'},     {"resume", 0, NULL, 'r'}, {"tls-priority", 1, NULL, 'P'},
        {"status", 1, NULL, 'a'},  {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1)
        take(options, c, optarg);
    if (optind != argc || (!options->port && !options->socket) || !options->connections || !options->piece_bytes)
        usage();
    if (options->over_tls)
        options->tls = bench_tls_client(options->tls_priority);
}

int main(int argc, char **argv) {
    struct load_options options = {.path = "/",
                                   .host = "127.0.0.1",
                                   .method = "POST",
                                   .json = "{}",
                                   .header = "",
                                   .tls_priority = BENCH_TLS_PRIORITY,
                                   .status = 200,
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
