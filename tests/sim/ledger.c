#include "tests/sim/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/crc32c.h"

enum { PAYLOAD_MAX = 1 << 16 };

void ledger_problem(struct ledger *ledger, const char *format, ...)
{
    va_list args;

    if (ledger->problem[0] != '\0') {
        return;
    }
    va_start(args, format);
    vsnprintf(ledger->problem, sizeof ledger->problem, format, args);
    va_end(args);
}

void ledger_payload(const struct ledger *ledger, uint32_t id, char *out)
{
    uint32_t size = ledger->messages[id].size;
    char head[32];
    int head_size = snprintf(head, sizeof head, "id-%u-", id);
    uint32_t state = id * 2654435761u + 1;

    for (uint32_t i = 0; i < size; i++) {
        if (i < (uint32_t)head_size) {
            out[i] = head[i];
        } else {
            state = state * 1664525u + 1013904223u;
            out[i] = (char)(state >> 24);
        }
    }
}

uint32_t ledger_identify(struct ledger *ledger, const struct ledger_record *record)
{
    static char expected[PAYLOAD_MAX];
    unsigned id;

    if (sscanf(record->payload, "id-%u-", &id) != 1 || id >= ledger->count ||
        ledger->messages[id].size != record->size || ledger->messages[id].topic != record->topic ||
        ledger->messages[id].partition != record->partition) {
        ledger_problem(ledger, "topic %u partition %u offset %llu: a record nobody sent there",
                       record->topic, record->partition, (unsigned long long)record->offset);
        return UINT32_MAX;
    }
    ledger_payload(ledger, id, expected);
    if (nd_crc32c(0, expected, record->size) != record->crc) {
        ledger_problem(ledger, "message %u at offset %llu: its bytes changed", id,
                       (unsigned long long)record->offset);
        return UINT32_MAX;
    }
    struct ledger_message *message = &ledger->messages[id];
    if (message->produce == LEDGER_REFUSED) {
        ledger_problem(ledger, "message %u was refused and is there", id);
    }
    if (record->offset >= ledger->sent[record->topic][record->partition]) {
        ledger_problem(ledger, "message %u is at offset %llu: not so many were sent there", id,
                       (unsigned long long)record->offset);
    }
    if (message->has_offset && message->offset != record->offset) {
        ledger_problem(ledger, "message %u was at offset %llu and is at %llu", id,
                       (unsigned long long)message->offset, (unsigned long long)record->offset);
    }
    return id;
}
