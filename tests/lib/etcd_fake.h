/* A small etcd: keys with revisions, leases, and transactions by the JSON gateway, on a free port of the loopback
 * interface, in a thread of the test. It can be made silent, to lose answers, to be another directory. */
#ifndef GB_TEST_ETCD_FAKE_H
#define GB_TEST_ETCD_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct etcd_fake;

struct etcd_fake *etcd_fake_start(void);
void etcd_fake_stop(struct etcd_fake *fake);
const char *etcd_fake_url(const struct etcd_fake *fake);

/* What is there. The text is copied into a buffer of the fake that the next call overwrites; NULL: no such key. */
const char *etcd_fake_get(struct etcd_fake *fake, const char *key);
void etcd_fake_put(struct etcd_fake *fake, const char *key, const char *value, int64_t lease);
void etcd_fake_delete(struct etcd_fake *fake, const char *key);
size_t etcd_fake_count(struct etcd_fake *fake, const char *prefix);
/* A hash of all keys and values that does not depend on revisions. */
uint64_t etcd_fake_sum(struct etcd_fake *fake);

/* Leases. */
void etcd_fake_grant(struct etcd_fake *fake, int64_t id, int64_t ttl_s);
void etcd_fake_expire(struct etcd_fake *fake, int64_t id);
bool etcd_fake_has_lease(struct etcd_fake *fake, int64_t id);

/* Faults. */
void etcd_fake_set_silent(struct etcd_fake *fake, bool silent); /* takes requests and does not answer */
void etcd_fake_set_status(struct etcd_fake *fake, int status);  /* of all answers; 0: as it should be */
void etcd_fake_lose_answers(struct etcd_fake *fake, const char *has,
                            unsigned n);                             /* to transactions whose body has it */
void etcd_fake_set_answer(struct etcd_fake *fake, const char *text); /* to all; NULL: as it should be */
void etcd_fake_set_cluster(struct etcd_fake *fake, uint64_t id);
void etcd_fake_set_term(struct etcd_fake *fake, uint64_t term);
void etcd_fake_set_date(struct etcd_fake *fake, int64_t offset_s);
void etcd_fake_wipe(struct etcd_fake *fake);

/* Requests to that path so far, and waiting until there are that many. "space": the nodes' questions for space, which
 * are not counted among the transactions. */
unsigned etcd_fake_requests(struct etcd_fake *fake, const char *path);
void etcd_fake_wait_requests(struct etcd_fake *fake, const char *path, unsigned n);

#endif
