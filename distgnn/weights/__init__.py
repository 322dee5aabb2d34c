"""The weight channel: what ranks tell each other about weights."""
