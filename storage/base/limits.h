/* Limits that several layers share and that no layer may change alone. */
#ifndef ND_LIMITS_H
#define ND_LIMITS_H

enum { ND_TOPIC_NAME_SIZE_MAX = 255 };

#endif
