/* Memory of an owner, and its adoption made to wait, for the core's tests. The owner is this process. */
#ifndef ADOPT_FIXTURE_H
#define ADOPT_FIXTURE_H

#include "lease_fixture.h"

/* A memfd, as an owner has it. */
struct core_memory {
    int fd;
    uint64_t size; /* of the file */
    char *bytes;   /* all of it */
};

/* seals: of fcntl; ends the test when it cannot be had. */
struct core_memory core_memory_new(uint64_t size, int seals);
void core_memory_done(struct core_memory *memory);

struct gb_adopt_params core_adopt_params(struct gb_holder *holder, const struct core_memory *memory, const char *name,
                                         uint64_t offset, uint64_t bytes);

/* The memory's descriptor stays the caller's. ret may be NULL. */
int core_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct core_result *ret,
               struct gb_error *err);

/* The same memory, whole, under a name: ends the test when it is refused. */
void core_adopt_all(struct core_fixture *f, struct gb_holder *holder, const struct core_memory *memory,
                    const char *name);

uint64_t core_adopted(struct core_fixture *f); /* pieces that are mapped here */

/* Nothing of other processes is mapped here. */
void core_until_none_adopted(struct core_fixture *f);

/* The database takes nothing more, until it is let go. */
struct core_busy {
    sem_t entered;
    sem_t opened;
};
void core_busy_begin(struct core_busy *busy, struct core_fixture *f);
void core_busy_end(struct core_busy *busy);
void core_until_queued(struct core_fixture *f); /* something waits for it */

#endif
