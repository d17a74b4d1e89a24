/* Blocking helpers for adoption in the core's tests. This process owns the adopted memory. */
#ifndef ADOPT_FIXTURE_H
#define ADOPT_FIXTURE_H

#include "lease_fixture.h"

/* A memfd of the owner. */
struct core_memory {
    int fd;
    uint64_t size; /* of the file */
    char *bytes;   /* all of it */
};

/* Makes the memfd; seals are those of fcntl. Ends the test on failure. */
struct core_memory core_memory_new(uint64_t size, int seals);
void core_memory_done(struct core_memory *memory);

struct gb_adopt_params core_adopt_params(struct gb_holder *holder, const struct core_memory *memory, const char *name,
                                         uint64_t offset, uint64_t bytes);

/* Adopts the memory and waits. The caller keeps the descriptor. ret may be NULL. */
int core_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct core_result *ret,
               struct gb_error *err);

/* Adopts the whole memory under a name; ends the test on failure. */
void core_adopt_all(struct core_fixture *f, struct gb_holder *holder, const struct core_memory *memory,
                    const char *name);

uint64_t core_adopted(struct core_fixture *f); /* mappings in this process */

/* Waits until this process maps no adopted memory. */
void core_until_none_adopted(struct core_fixture *f);

/* _begin blocks the database's writer until _end. */
struct core_busy {
    sem_t entered;
    sem_t opened;
};
void core_busy_begin(struct core_busy *busy, struct core_fixture *f);
void core_busy_end(struct core_busy *busy);
void core_until_queued(struct core_fixture *f); /* waits until a change is queued */

#endif
