/* Files that hold tensors in a form that is stored as bytes: archives and pickles. */
#include <string.h>
#include <unistd.h>

#include "cli/files.h"
#include "cli/sink.h"
#include "cli/source.h"

/* Endings of pickles; .bin is one of raw bytes as well. */
static const char *const pickles[] = {".pkl", ".pickle", ".pt", ".pth", ".bin"};

#define COUNT (sizeof pickles / sizeof pickles[0])

/* The bytes that a file begins with, without taking them. */
static size_t look(const struct gb_cli_source *source, unsigned char ret[4]) {
    ssize_t n;

    if (source->pipe) {
        memcpy(ret, source->front, 4);
        return source->front_bytes < 4 ? source->front_bytes : 4;
    }
    n = pread(source->fd, ret, 4, (off_t)source->front_at);
    return n > 0 ? (size_t)n : 0;
}

/* By the beginning of a file. */
static bool is_archive(const unsigned char front[4]) {
    return memcmp(front, "PK\003\004", 4) == 0;
}

static bool is_pickle(const unsigned char front[4]) {
    return front[0] == 0x80 && front[1] >= 2 && front[1] <= 5;
}

bool gb_cli_warn_archive(const struct gb_cli *cli, const struct gb_cli_source *source, const char *path) {
    const char *what = NULL;
    unsigned char front[4];
    size_t i;

    if (cli->options.raw || cli->options.quiet || look(source, front) < 4)
        return false;
    if (is_archive(front))
        what = gb_cli_ends_in(path, ".npz") ? "a .npz archive" : "a zip archive, as torch.save() writes";
    for (i = 0; i < COUNT; i++)
        if (is_pickle(front) && gb_cli_ends_in(path, pickles[i]))
            what = "a pickle";
    if (what == NULL)
        return false;
    fputs("gpubuf: warning: ", stderr);
    gb_cli_put(stderr, path);
    fprintf(stderr,
            " is %s and is stored as its bytes, not as tensors: convert it to safetensors or .npy if these are "
            "meant (--raw says that the bytes are)\n",
            what);
    return true;
}

void gb_cli_warn_no_archive(const struct gb_cli *cli, const struct gb_cli_sink *sink, const char *path) {
    const char *what = gb_cli_ends_in(path, ".npz") ? "a .npz archive" : NULL;
    unsigned char front[4] = {0};
    size_t i;

    for (i = 0; i < COUNT; i++)
        if (gb_cli_ends_in(path, pickles[i]) && strcmp(pickles[i], ".bin") != 0)
            what = "what its ending says";
    if (cli->options.raw || cli->options.quiet || what == NULL || !sink->seeks)
        return;
    if (pread(sink->fd, front, sizeof front, 0) == sizeof front && (is_archive(front) || is_pickle(front)))
        return; /* that was put as its bytes */
    fputs("gpubuf: warning: ", stderr);
    gb_cli_put(stderr, path);
    fprintf(stderr,
            " has the buffer's bytes as they are and is not %s: a FILE that ends in .npy or .safetensors has the dtype "
            "and shape, too (--raw says that the bytes are meant)\n",
            what);
}
