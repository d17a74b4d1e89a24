/* Files that hold tensors in a form that is stored as bytes: archives and pickles. */
#include <string.h>
#include <unistd.h>

#include "cli/files.h"
#include "cli/source.h"

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

void gb_cli_warn_archive(const struct gb_cli *cli, const struct gb_cli_source *source, const char *path) {
    static const char *const pickles[] = {".pkl", ".pickle", ".pt", ".pth", ".bin"};
    const char *what = NULL;
    unsigned char front[4];
    size_t i;

    if (cli->options.raw || cli->options.quiet || look(source, front) < 4)
        return;
    if (memcmp(front, "PK\003\004", 4) == 0)
        what = gb_cli_ends_in(path, ".npz") ? "a .npz archive" : "a zip archive, as torch.save() writes";
    for (i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
        if (front[0] == 0x80 && front[1] >= 2 && front[1] <= 5 && gb_cli_ends_in(path, pickles[i]))
            what = "a pickle";
    if (what == NULL)
        return;
    fputs("gpubuf: warning: ", stderr);
    gb_cli_put(stderr, path);
    fprintf(stderr,
            " is %s and is stored as its bytes, not as tensors: convert it to safetensors or .npy if these are "
            "meant (--raw says that the bytes are)\n",
            what);
}
