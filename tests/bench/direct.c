#include "direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define NAME_SIZE 64

struct task {
    struct task *next;
    void (*run)(struct task *task);
    struct direct_file *file;
    void *memory;
    size_t n;
    uint64_t at;
    int folder;
    char name[NAME_SIZE];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct task *first;
    struct task **last;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER, .last = &queue.first};

/* --- the threads -------------------------------------------------------------------------------------------------- */

static struct task *task_new(void (*run)(struct task *task)) {
    struct task *task = calloc(1, sizeof *task);

    if (!task)
        bench_die("no memory");
    task->run = run;
    return task;
}

static void post(struct task *task) {
    pthread_mutex_lock(&queue.lock);
    *queue.last = task;
    queue.last = &task->next;
    pthread_mutex_unlock(&queue.lock);
    pthread_cond_signal(&queue.some);
}

static void *work(void *arg) {
    (void)arg;
    for (;;) {
        struct task *task;

        pthread_mutex_lock(&queue.lock);
        while (!queue.first)
            pthread_cond_wait(&queue.some, &queue.lock);
        task = queue.first;
        queue.first = task->next;
        if (!queue.first)
            queue.last = &queue.first;
        pthread_mutex_unlock(&queue.lock);
        task->run(task);
        free(task);
    }
    return NULL;
}

void direct_start(void) {
    int i;

    for (i = 0; i < DIRECT_DEPTH; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, work, NULL))
            bench_die("no thread");
    }
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static void ended(struct direct_file *file) {
    pthread_mutex_lock(&file->lock);
    if (--file->pending == 0)
        pthread_cond_signal(&file->none);
    pthread_mutex_unlock(&file->lock);
}

static void run_write(struct task *task) {
    size_t done = 0;

    while (done < task->n) {
        ssize_t n = pwrite(task->file->fd, (char *)task->memory + done, task->n - done, (off_t)(task->at + done));

        if (n <= 0)
            bench_die("pwrite: %s", n < 0 ? strerror(errno) : "nothing written");
        done += (size_t)n;
    }
    ended(task->file);
}

/* The last page of a file may be short. */
static void run_read(struct task *task) {
    size_t done = 0;

    while (done < task->n) {
        ssize_t n = pread(task->file->fd, (char *)task->memory + done, task->n - done, (off_t)(task->at + done));

        if (n < 0)
            bench_die("pread: %s", strerror(errno));
        if (n % DIRECT_ALIGN != 0 || n == 0)
            break;
        done += (size_t)n;
    }
    ended(task->file);
}

static void transfer(struct direct_file *file, void (*run)(struct task *task), void *memory, size_t n, uint64_t at) {
    struct task *task = task_new(run);

    task->file = file;
    task->memory = memory;
    task->n = n;
    task->at = at;
    pthread_mutex_lock(&file->lock);
    file->pending++;
    pthread_mutex_unlock(&file->lock);
    post(task);
}

void direct_write(struct direct_file *file, const void *memory, size_t n, uint64_t at) {
    transfer(file, run_write, (void *)(uintptr_t)memory, n, at);
}

void direct_read(struct direct_file *file, void *memory, size_t n, uint64_t at) {
    transfer(file, run_read, memory, n, at);
}

void direct_wait(struct direct_file *file) {
    pthread_mutex_lock(&file->lock);
    while (file->pending > 0)
        pthread_cond_wait(&file->none, &file->lock);
    pthread_mutex_unlock(&file->lock);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void init(struct direct_file *file, int fd, const char *name) {
    if (fd < 0)
        bench_die("%s: %s", name, strerror(errno));
    file->fd = fd;
    file->pending = 0;
    pthread_mutex_init(&file->lock, NULL);
    pthread_cond_init(&file->none, NULL);
}

void direct_create(struct direct_file *file, int folder, const char *name, uint64_t bytes) {
    init(file, openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600), name);
    if (fallocate(file->fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP)
        bench_die("fallocate: %s", strerror(errno));
}

void direct_open(struct direct_file *file, const char *path, uint64_t *ret_bytes) {
    struct stat st;

    init(file, open(path, O_RDONLY | O_DIRECT | O_CLOEXEC), path);
    if (fstat(file->fd, &st) != 0)
        bench_die("%s: %s", path, strerror(errno));
    *ret_bytes = (uint64_t)st.st_size;
}

void direct_sync(struct direct_file *file, uint64_t bytes) {
    if (ftruncate(file->fd, (off_t)bytes) != 0 || fdatasync(file->fd) != 0)
        bench_die("the file cannot be synced: %s", strerror(errno));
}

void direct_close(struct direct_file *file) {
    close(file->fd);
    pthread_cond_destroy(&file->none);
    pthread_mutex_destroy(&file->lock);
}

static void run_remove(struct task *task) {
    unlinkat(task->folder, task->name, 0); /* one that the script has removed is as good */
}

void direct_remove(int folder, const char *name) {
    struct task *task = task_new(run_remove);

    task->folder = folder;
    snprintf(task->name, sizeof task->name, "%s", name);
    post(task);
}

int direct_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    return fd;
}
