/* What the clients of a run know: every message that was sent, what they were told about it, and
 * what that allows a node to show after any crash (P1, P2, P3). */
#ifndef ND_TESTS_SIM_LEDGER_H
#define ND_TESTS_SIM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ledger_produce {
    LEDGER_UNKNOWN,  /* no answer, or one that leaves it open: there once, or not at all */
    LEDGER_ACCEPTED, /* there exactly once, at its offset */
    LEDGER_REFUSED,  /* never there */
};

enum ledger_ack {
    LEDGER_UNACKED,     /* it must be delivered */
    LEDGER_ACK_UNKNOWN, /* it may be delivered */
    LEDGER_ACKED,       /* it must not be delivered */
};

struct ledger_message {
    uint32_t topic, partition;
    uint32_t size; /* of the payload */
    uint64_t offset;
    bool has_offset;
    enum ledger_produce produce;
    enum ledger_ack ack;
    int64_t sent_ms; /* on the commit clock: it was not committed before */
    bool gone;       /* its topic was deleted */
    uint32_t seen;   /* scratch of a check */
};

enum { LEDGER_MESSAGES_MAX = 2048, LEDGER_TOPICS_MAX = 64, LEDGER_PARTITIONS_MAX = 4 };

struct ledger {
    struct ledger_message messages[LEDGER_MESSAGES_MAX];
    uint32_t count;
    /* Messages sent there: no offset can be so high. A topic made again counts as another one. */
    uint32_t sent[LEDGER_TOPICS_MAX][LEDGER_PARTITIONS_MAX];
    char problem[512]; /* the first one found; "" none */
};

/* The payload of message `id`: "id-<id>-" and a pattern up to its size. */
void ledger_payload(const struct ledger *ledger, uint32_t id, char *out);
/* A stored or delivered record, as far as the ledger needs it. */
struct ledger_record {
    const char *payload; /* its first bytes, NUL-terminated */
    size_t size;
    uint32_t crc; /* of all of it */
    uint32_t topic, partition;
    uint64_t offset;
};
/* Which message is it? UINT32_MAX, with a problem noted, when it was never sent, or is changed. */
uint32_t ledger_identify(struct ledger *ledger, const struct ledger_record *record);
void ledger_problem(struct ledger *ledger, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
