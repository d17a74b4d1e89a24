/* A fuzz target: libFuzzer calls it with --enable-fuzzers, replay.c otherwise. */
#ifndef GB_FUZZ_H
#define GB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Texts that the target takes, NULL at the end; replay.c starts from them. */
extern const char *const gb_fuzz_seeds[];

/* A target may say how many mutants of each seed replay.c makes, and what is to be done behind the last. */
extern const unsigned gb_fuzz_mutants __attribute__((weak));
void gb_fuzz_end(void) __attribute__((weak));

/* In a replay, and nowhere else. */
extern const bool gb_fuzz_replays __attribute__((weak));

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold, in every build. */
#define FUZZ_ASSERT(expr)                                                                                              \
    do {                                                                                                               \
        if (!(expr))                                                                                                   \
            abort();                                                                                                   \
    } while (0)

#endif
