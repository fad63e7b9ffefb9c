"""The lab room: experiments on recorded sessions."""
