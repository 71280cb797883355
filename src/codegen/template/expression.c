/* See expression.h. Precedence climbing over a table of operators. */
#include "codegen/template/expression.h"

#include <limits.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NAME = 63 };

struct parser {
    const char *at, *end;
    const struct smelt__scope *scope; /* NULL: check the syntax only */
    int skipped;                      /* above 0: inside an operand that is not evaluated */
    int depth;
    struct smelt__message *message;
};

enum operation {
    OR,
    AND,
    EQUAL,
    NOT_EQUAL,
    LESS_EQUAL,
    GREATER_EQUAL,
    LESS,
    GREATER,
    PLUS,
    MINUS,
    TIMES,
    DIVIDE,
    REMAINDER
};

/* Longer spellings first: the first match is taken. */
static const struct operator_ {
    const char *spelling;
    int precedence;
    enum operation operation;
} operators[] = {
    {"||", 1, OR},         {"&&", 2, AND},           {"==", 3, EQUAL}, {"!=", 3, NOT_EQUAL},
    {"<=", 4, LESS_EQUAL}, {">=", 4, GREATER_EQUAL}, {"<", 4, LESS},   {">", 4, GREATER},
    {"+", 5, PLUS},        {"-", 5, MINUS},          {"*", 6, TIMES},  {"/", 6, DIVIDE},
    {"%", 6, REMAINDER},
};

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

size_t smelt__name_length(const char *text, size_t length) {
    size_t used = 0;
    while (used < length && (is_letter(text[used]) || (used && is_digit(text[used]))))
        used++;
    return used;
}

static void skip_blanks(struct parser *parser) {
    while (parser->at < parser->end && (*parser->at == ' ' || *parser->at == '\t'))
        parser->at++;
}

/* Whether the operand is evaluated. */
static int is_live(const struct parser *parser) {
    return parser->scope && !parser->skipped;
}

static int parse_binary(struct parser *parser, int lowest, int *value);

static int parse_number(struct parser *parser, int *value) {
    int number = 0;
    for (; parser->at < parser->end && is_digit(*parser->at); parser->at++) {
        int digit = *parser->at - '0';
        if (number > (INT_MAX - digit) / 10)
            return smelt__message_set(parser->message, "a number in the expression is too large");
        number = number * 10 + digit;
    }
    if (smelt__name_length(parser->at, (size_t)(parser->end - parser->at)))
        return smelt__message_set(parser->message, "a number in the expression runs into a name");
    *value = number;
    return 0;
}

static int parse_name(struct parser *parser, int *value) {
    size_t length = smelt__name_length(parser->at, (size_t)(parser->end - parser->at));
    char name[MAX_NAME + 1];
    if (length > MAX_NAME)
        return smelt__message_set(parser->message, "a name in the expression is too long");
    memcpy(name, parser->at, length);
    name[length] = '\0';
    parser->at += length;
    *value = 0;
    if (!is_live(parser))
        return 0;
    int found = 0;
    *value = parser->scope->lookup(parser->scope->user, name, &found);
    if (!found)
        return smelt__message_set(parser->message, "no constant or loop variable is called '%s'",
                                  name);
    return 0;
}

static int parse_parenthesis(struct parser *parser, int *value) {
    parser->at++;
    if (parse_binary(parser, 1, value))
        return -1;
    skip_blanks(parser);
    if (parser->at == parser->end || *parser->at != ')')
        return smelt__message_set(parser->message, "')' is missing in the expression");
    parser->at++;
    return 0;
}

static int parse_operand(struct parser *parser, int *value) {
    skip_blanks(parser);
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (is_digit(c))
        return parse_number(parser, value);
    if (is_letter(c))
        return parse_name(parser, value);
    if (c == '\0')
        return smelt__message_set(parser->message, "an operand is missing at the expression's end");
    if (c != '(' && c != '!' && c != '-')
        return smelt__message_set(parser->message, "unexpected '%c' in the expression", c);
    if (++parser->depth > MAX_DEPTH)
        return smelt__message_set(parser->message, "the expression is nested too deeply");
    int status = 0;
    if (c == '(') {
        status = parse_parenthesis(parser, value);
    } else {
        parser->at++;
        status = parse_operand(parser, value);
        /* No literal or constant is INT_MIN, so only a sum's negation could overflow. */
        if (!status && c == '-' && __builtin_sub_overflow(0, *value, value)) {
            smelt__message_set(parser->message, "the expression overflows");
            status = -1;
        }
        if (!status && c == '!')
            *value = !*value;
    }
    parser->depth--;
    return status;
}

static int divide(struct parser *parser, enum operation operation, int left, int right,
                  int *value) {
    if (right == 0 || (left == INT_MIN && right == -1))
        return smelt__message_set(parser->message, "the expression divides %d by %d", left, right);
    *value = operation == DIVIDE ? left / right : left % right;
    return 0;
}

static int apply(struct parser *parser, enum operation operation, int left, int right, int *value) {
    int overflow = 0;
    *value = 0;
    if (!is_live(parser))
        return 0;
    switch (operation) {
    case OR:
        *value = left || right;
        break;
    case AND:
        *value = left && right;
        break;
    case EQUAL:
        *value = left == right;
        break;
    case NOT_EQUAL:
        *value = left != right;
        break;
    case LESS_EQUAL:
        *value = left <= right;
        break;
    case GREATER_EQUAL:
        *value = left >= right;
        break;
    case LESS:
        *value = left < right;
        break;
    case GREATER:
        *value = left > right;
        break;
    case PLUS:
        overflow = __builtin_add_overflow(left, right, value);
        break;
    case MINUS:
        overflow = __builtin_sub_overflow(left, right, value);
        break;
    case TIMES:
        overflow = __builtin_mul_overflow(left, right, value);
        break;
    case DIVIDE:
    case REMAINDER:
        return divide(parser, operation, left, right, value);
    }
    if (overflow)
        smelt__message_set(parser->message, "the expression overflows");
    return overflow ? -1 : 0;
}

/* The operator at the current position, or NULL. */
static const struct operator_ *next_operator(struct parser *parser) {
    skip_blanks(parser);
    size_t left = (size_t)(parser->end - parser->at);
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        size_t length = strlen(operators[i].spelling);
        if (length <= left && memcmp(parser->at, operators[i].spelling, length) == 0)
            return &operators[i];
    }
    return NULL;
}

static int parse_binary(struct parser *parser, int lowest, int *value) {
    if (parse_operand(parser, value))
        return -1;
    const struct operator_ *operator_;
    while ((operator_ = next_operator(parser)) && operator_->precedence >= lowest) {
        parser->at += strlen(operator_->spelling);
        int decided =
            (operator_->operation == OR && *value) || (operator_->operation == AND && !*value);
        int right;
        parser->skipped += decided;
        int status = parse_binary(parser, operator_->precedence + 1, &right);
        parser->skipped -= decided;
        if (status || apply(parser, operator_->operation, *value, right, value))
            return -1;
    }
    return 0;
}

int smelt__expression_evaluate(const char *text, size_t length, const struct smelt__scope *scope,
                               int *value, struct smelt__message *message) {
    struct parser parser = {text, text + length, scope, 0, 0, message};
    if (parse_binary(&parser, 1, value))
        return -1;
    skip_blanks(&parser);
    if (parser.at != parser.end)
        return smelt__message_set(message, "unexpected '%c' in the expression", *parser.at);
    return 0;
}

int smelt__expression_check(const char *text, size_t length, struct smelt__message *message) {
    int value;
    return smelt__expression_evaluate(text, length, NULL, &value, message);
}
