"""The lab: experiments on recorded sessions."""
