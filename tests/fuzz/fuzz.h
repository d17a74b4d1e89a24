/* A fuzz target. libFuzzer calls it with --enable-fuzzers, replay.c otherwise. */
#ifndef GB_FUZZ_H
#define GB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Valid inputs of the target, ended by NULL; replay.c starts from them. */
extern const char *const gb_fuzz_seeds[];

/* A target may set the number of mutants that replay.c makes of each seed, and a function to call after the last. */
extern const unsigned gb_fuzz_mutants __attribute__((weak));
void gb_fuzz_end(void) __attribute__((weak));

/* Called only in a replay. */
extern const bool gb_fuzz_replays __attribute__((weak));

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes of an input, taken from its front as numbers; 0 behind its end. */
struct gb_fuzz_in {
    const uint8_t *at;
    size_t n;
};

static inline uint8_t gb_fuzz_byte(struct gb_fuzz_in *in) {
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->at++;
}

static inline uint64_t gb_fuzz_number(struct gb_fuzz_in *in, unsigned bytes) {
    uint64_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | gb_fuzz_byte(in);
    return value;
}

/* An assertion that is checked in every build. */
#define FUZZ_ASSERT(expr)                                                                                              \
    do {                                                                                                               \
        if (!(expr))                                                                                                   \
            abort();                                                                                                   \
    } while (0)

/* A failure says why. */
#define FUZZ_ASSERT_SAYS(err) FUZZ_ASSERT((err).code != GB_OK && (err).detail[0] != '\0')

#endif
