/* Runs a fuzz target without a fuzzer: its seeds and fixed mutations of them, or the files given as arguments and
 * those of the folders among these (a corpus, the findings of a fuzzer). A failure ends the program by a signal.
 * "--seeds DIR" writes the seeds as files for a fuzzer to start from. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"

#define MUTANTS_PER_SEED 5000
#define INPUT_MAX 4096

const bool gb_fuzz_replays = true;

static uint32_t next_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Copies the input to a heap block of exactly its size, so that the address sanitizer reports a read past its end. */
static void run_one(const char *data, size_t n) {
    uint8_t *exact = malloc(n > 0 ? n : 1);

    FUZZ_ASSERT(exact != NULL);
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static size_t mutate(char *data, size_t n, uint32_t *state) {
    static const char interesting[] = "\0\n\"'\\{}[](),:;=-+*/%. 019aAnNtTW\x7f\x80\xff";
    unsigned changes = 1 + next_random(state) % 4;

    while (changes-- > 0) {
        size_t at = n > 0 ? next_random(state) % n : 0;
        char c = interesting[next_random(state) % (sizeof interesting - 1)];

        switch (next_random(state) % 5) {
        case 0: /* replace */
            if (n > 0)
                data[at] = c;
            break;
        case 1: /* insert */
            if (n < INPUT_MAX) {
                memmove(data + at + 1, data + at, n - at);
                data[at] = c;
                n++;
            }
            break;
        case 2: /* drop the end */
            n = at;
            break;
        case 3: /* drop one */
            if (n > 0) {
                memmove(data + at, data + at + 1, n - at - 1);
                n--;
            }
            break;
        default: { /* repeat a piece */
            size_t piece = n - at < 64 ? n - at : 64;

            if (n + piece <= INPUT_MAX) {
                memmove(data + at + piece, data + at, n - at);
                n += piece;
            }
            break;
        }
        }
    }
    return n;
}

static size_t files;

static int run_file(const char *path) {
    char data[1 << 16];
    FILE *file = fopen(path, "rb");
    size_t n;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    n = fread(data, 1, sizeof data, file);
    fclose(file);
    run_one(data, n);
    files++;
    return 0;
}

static int run_path(const char *path) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[4096];
    int failed = 0;

    if (folder == NULL)
        return run_file(path);
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failed |= run_file(name);
    }
    closedir(folder);
    return failed;
}

static int write_seeds(const char *folder) {
    char path[4096];
    FILE *file;
    size_t i;

    for (i = 0; gb_fuzz_seeds[i] != NULL; i++) {
        snprintf(path, sizeof path, "%s/seed-%zu", folder, i);
        file = fopen(path, "wb");
        if (file == NULL || fputs(gb_fuzz_seeds[i], file) < 0 || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    int mutants = &gb_fuzz_mutants ? (int)gb_fuzz_mutants : MUTANTS_PER_SEED;
    char data[INPUT_MAX + 1];
    unsigned runs = 0;
    int failed = 0;
    size_t i;
    int k;

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    for (k = 1; k < argc; k++)
        failed |= run_path(argv[k]);
    for (i = 0; argc == 1 && gb_fuzz_seeds[i] != NULL; i++) {
        size_t n = strlen(gb_fuzz_seeds[i]);
        uint32_t state = 2463534242u + (uint32_t)i;

        run_one(gb_fuzz_seeds[i], n);
        for (k = 0; k < mutants; k++, runs++) {
            memcpy(data, gb_fuzz_seeds[i], n);
            run_one(data, mutate(data, n, &state));
        }
    }
    if (gb_fuzz_end)
        gb_fuzz_end();
    printf("%u mutants of %zu seeds, %zu files\n%zu passed, %d failed\n", runs, i, files, i + files, failed);
    return failed;
}
