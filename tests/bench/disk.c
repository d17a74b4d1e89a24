/* The disk without a daemon: what durable uploads, loads and commits are measured against. Each mode prints one JSON
 * object on stdout. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "direct.h"
#include "util.h"

#define PATH_SIZE 4096
#define FLUSHES 300
#define SOURCE_PIECES 4
#define CHECKPOINT_PAGES 4000 /* as the daemon's */

static struct {
    const char *dir;
    uint64_t bytes;
    unsigned connections;
    unsigned requests;
    double seconds;
    bool fresh;
    bool unsynced;
} options = {.bytes = 64 << 20, .connections = 1, .requests = 1, .seconds = 1.0};

static void print_result(uint64_t requests, uint64_t bytes, double seconds) {
    printf("{\"requests\": %" PRIu64 ", \"errors\": 0, \"seconds\": %.6f, \"bytes\": %" PRIu64
           ", \"bytes_per_s\": %.0f, \"requests_per_s\": %.1f}\n",
           requests, seconds, bytes, (double)bytes / seconds, (double)requests / seconds);
}

/* --- probe: what the file system says, and how long a flush takes ------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void print_times(const char *name, uint64_t *ns, unsigned count) {
    qsort(ns, count, sizeof *ns, by_value);
    printf(", \"%s_p50_us\": %.1f, \"%s_p99_us\": %.1f", name, (double)ns[count / 2] / 1e3, name,
           (double)ns[count * 99 / 100] / 1e3);
}

static int new_file(const char *name, int flags) {
    char path[PATH_SIZE];
    int fd;

    snprintf(path, sizeof path, "%s/%s", options.dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    unlink(path);
    return fd;
}

static void must_write(int fd, const void *page, off_t at) {
    if (pwrite(fd, page, DIRECT_ALIGN, at) != DIRECT_ALIGN)
        bench_die("pwrite: %s", strerror(errno));
}

/* A page of a file that is there, and the sync behind it. */
static void probe_overwrites(const void *page) {
    static uint64_t ns[FLUSHES];
    int fd = new_file("probe-overwrite", O_DIRECT);
    int i;

    for (i = 0; i < FLUSHES; i++)
        must_write(fd, page, (off_t)i * DIRECT_ALIGN);
    fdatasync(fd);
    for (i = 0; i < FLUSHES; i++) {
        uint64_t began_ns = bench_now_ns();

        must_write(fd, page, (off_t)i * DIRECT_ALIGN);
        if (fdatasync(fd) != 0)
            bench_die("fdatasync: %s", strerror(errno));
        ns[i] = bench_now_ns() - began_ns;
    }
    print_times("overwrite", ns, FLUSHES);
    close(fd);
}

/* A page behind the end, as the log of a database takes it. */
static void probe_appends(const void *page) {
    static uint64_t ns[FLUSHES];
    int fd = new_file("probe-append", 0);
    int i;

    for (i = 0; i < FLUSHES; i++) {
        uint64_t began_ns = bench_now_ns();

        must_write(fd, page, (off_t)i * DIRECT_ALIGN);
        if (fdatasync(fd) != 0)
            bench_die("fdatasync: %s", strerror(errno));
        ns[i] = bench_now_ns() - began_ns;
    }
    print_times("append", ns, FLUSHES);
    close(fd);
}

static void probe_alignment(void) {
    int fd = new_file("probe-align", 0);
    struct statx stx;

    memset(&stx, 0, sizeof stx);
#ifdef STATX_DIOALIGN
    statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx);
    if (!(stx.stx_mask & STATX_DIOALIGN))
        stx.stx_dio_mem_align = stx.stx_dio_offset_align = 0;
    printf("\"dio_mem_align\": %u, \"dio_offset_align\": %u", stx.stx_dio_mem_align, stx.stx_dio_offset_align);
#else
    printf("\"dio_mem_align\": null, \"dio_offset_align\": null");
#endif
    close(fd);
}

static void probe(char **files) {
    void *page = bench_resident(DIRECT_ALIGN);

    (void)files;
    printf("{");
    probe_alignment();
    probe_overwrites(page);
    probe_appends(page);
    printf("}\n");
}

/* --- write: new files of N bytes, each synced --------------------------------------------------------------------- */

struct stream {
    pthread_t thread;
    unsigned number;
    int folder;
    const char *source;
};

static void *write_files(void *arg) {
    const struct stream *stream = arg;
    char name[64];
    unsigned i;

    for (i = 0; i < options.requests; i++) {
        struct direct_file file;
        uint64_t at;

        snprintf(name, sizeof name, "new-%d-%u-%u", (int)getpid(), stream->number, i);
        direct_create(&file, stream->folder, name, options.bytes);
        for (at = 0; at < options.bytes; at += DIRECT_PIECE_BYTES)
            direct_write(&file, stream->source + at / DIRECT_PIECE_BYTES % SOURCE_PIECES * DIRECT_PIECE_BYTES,
                         options.bytes - at < DIRECT_PIECE_BYTES ? (size_t)(options.bytes - at) : DIRECT_PIECE_BYTES,
                         at);
        direct_wait(&file);
        if (!options.unsynced)
            direct_sync(&file, options.bytes);
        direct_close(&file);
        direct_remove(stream->folder, name);
    }
    return NULL;
}

static void write_all(char **files) {
    struct stream *streams = calloc(options.connections, sizeof *streams);
    uint64_t count = (uint64_t)options.connections * options.requests;
    char *source = bench_resident(SOURCE_PIECES * DIRECT_PIECE_BYTES);
    uint64_t began_ns;
    unsigned i;

    (void)files;
    if (!streams || options.bytes % DIRECT_ALIGN != 0)
        bench_die("--bytes: whole pages");
    direct_start();
    began_ns = bench_now_ns();
    for (i = 0; i < options.connections; i++) {
        streams[i].number = i;
        streams[i].folder = direct_folder(options.dir);
        streams[i].source = source;
        if (pthread_create(&streams[i].thread, NULL, write_files, &streams[i]))
            bench_die("no thread");
    }
    for (i = 0; i < options.connections; i++)
        pthread_join(streams[i].thread, NULL);
    print_result(count, count * options.bytes, (double)(bench_now_ns() - began_ns) / 1e9);
    free(streams);
}

/* --- read: files past the cache, one after the other -------------------------------------------------------------- */

#define ROOM_BYTES (2 * DIRECT_DEPTH * DIRECT_PIECE_BYTES) /* for the reads at once, and some that wait */

/* Memory that no page is behind, as that of a buffer which is loaded. */
static char *fresh_memory(uint64_t bytes) {
    char *memory = mmap(NULL, bytes + DIRECT_PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        bench_die("no memory");
    madvise(memory, bytes + DIRECT_PIECE_BYTES, MADV_HUGEPAGE);
    return memory;
}

static uint64_t read_file(const char *path, char *memory) {
    struct direct_file file;
    uint64_t bytes, at;

    direct_open(&file, path, &bytes);
    if (options.fresh)
        memory = fresh_memory(bytes);
    for (at = 0; at < bytes; at += DIRECT_PIECE_BYTES)
        direct_read(&file, memory + (options.fresh ? at : at % ROOM_BYTES), DIRECT_PIECE_BYTES, at);
    direct_wait(&file);
    direct_close(&file);
    return bytes;
}

static void read_all(char **files) {
    char *memory = bench_resident(ROOM_BYTES);
    uint64_t count = 0, bytes = 0, began_ns;

    direct_start();
    began_ns = bench_now_ns();
    for (; *files; files++, count++)
        bytes += read_file(*files, memory);
    print_result(count, bytes, (double)(bench_now_ns() - began_ns) / 1e9);
}

/* --- commit: small bodies in SQLite alone, as many in a commit as there would be connections ---------------------- */

static void sql(sqlite3 *db, const char *text) {
    char *why = NULL;

    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        bench_die("%s: %s", text, why ? why : "no memory");
}

static sqlite3 *open_database(void) {
    char path[PATH_SIZE];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/bare.db", options.dir);
    if (sqlite3_open(path, &db) != SQLITE_OK)
        bench_die("%s: %s", path, sqlite3_errmsg(db));
    sql(db, "PRAGMA journal_mode=WAL");
    sql(db, "PRAGMA synchronous=FULL");
    sqlite3_wal_autocheckpoint(db, CHECKPOINT_PAGES);
    sql(db, "CREATE TABLE IF NOT EXISTS stored(id INTEGER PRIMARY KEY, data BLOB)");
    return db;
}

static void must_step(sqlite3 *db, sqlite3_stmt *stmt) {
    if (sqlite3_step(stmt) != SQLITE_DONE)
        bench_die("SQLite: %s", sqlite3_errmsg(db));
    sqlite3_reset(stmt);
}

static void commit(char **files) {
    char *body = bench_resident(options.bytes);
    sqlite3 *db = open_database();
    uint64_t count = 0, began_ns, now_ns;
    sqlite3_stmt *put, *begin, *end;
    unsigned i;

    (void)files;
    if (sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO stored VALUES(?1, ?2)", -1, &put, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &begin, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "COMMIT", -1, &end, NULL) != SQLITE_OK)
        bench_die("SQLite: %s", sqlite3_errmsg(db));
    began_ns = bench_now_ns();
    do {
        must_step(db, begin);
        for (i = 0; i < options.connections; i++, count++) {
            sqlite3_bind_int64(put, 1, i + 1);
            sqlite3_bind_blob(put, 2, body, (int)options.bytes, SQLITE_STATIC);
            must_step(db, put);
        }
        must_step(db, end);
        now_ns = bench_now_ns();
    } while ((double)(now_ns - began_ns) < options.seconds * 1e9);
    print_result(count, count * options.bytes, (double)(now_ns - began_ns) / 1e9);
    sqlite3_finalize(put);
    sqlite3_finalize(begin);
    sqlite3_finalize(end);
    sqlite3_close(db);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*run)(char **files);
} modes[] = {{"probe", probe}, {"write", write_all}, {"read", read_all}, {"commit", commit}};

static void usage(void) {
    bench_die("usage: gb-bench-disk probe --dir DIR\n"
              "       gb-bench-disk write --dir DIR [--bytes SIZE] [--connections N] [--requests N] [--unsynced]\n"
              "       gb-bench-disk read [--fresh] FILE...\n"
              "       gb-bench-disk commit --dir DIR [--bytes SIZE] [--connections N] [--seconds S]");
}

static char **parse(int argc, char **argv) {
    static const struct option table[] = {
        {"dir", 1, NULL, 'd'},     {"bytes", 1, NULL, 'b'}, {"connections", 1, NULL, 'c'}, {"requests", 1, NULL, 'n'},
        {"seconds", 1, NULL, 's'}, {"fresh", 0, NULL, 'f'}, {"unsynced", 0, NULL, 'u'},    {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'd')
            options.dir = optarg;
        else if (c == 'b')
            options.bytes = bench_parse_size(optarg, "bytes");
        else if (c == 'c')
            options.connections = (unsigned)bench_parse_size(optarg, "connections");
        else if (c == 'n')
            options.requests = (unsigned)bench_parse_size(optarg, "requests");
        else if (c == 's')
            options.seconds = atof(optarg);
        else if (c == 'f')
            options.fresh = true;
        else if (c == 'u')
            options.unsynced = true;
        else
            usage();
    }
    return argv + optind;
}

int main(int argc, char **argv) {
    char **files;
    size_t i;

    if (argc < 2)
        usage();
    for (i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(argv[1], modes[i].name))
            break;
    if (i == sizeof modes / sizeof modes[0])
        usage();
    files = parse(argc - 1, argv + 1);
    if (!options.dir && modes[i].run != read_all)
        usage();
    bench_raise_nofile();
    modes[i].run(files);
    return 0;
}
